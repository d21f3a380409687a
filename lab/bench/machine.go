package bench

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
)

// Machine is where a run was made.
type Machine struct {
	CPU      string             `json:"cpu"` // model
	Cores    int                `json:"cores"`
	Kernel   string             `json:"kernel"` // without the suffix of a distribution
	Go       string             `json:"go"`     // of the lab
	Versions map[Program]string `json:"versions"`
	Load     [2]float64         `json:"load_average"` // over a minute, before and after

	// Tracked is whether netfilter tracks connections, as it does once Docker has made its
	// rules. Each packet then costs more, on loopback too.
	Tracked bool `json:"connection_tracking"`
}

var modelName = regexp.MustCompile(`(?m)^model name\s*:\s*(.+)$`)

func describeMachine(ctx context.Context, t Tools) Machine {
	// A file that is missing leaves its field at the default.
	m := Machine{
		CPU: runtime.GOARCH, Cores: runtime.NumCPU(), Go: runtime.Version(),
		Versions: map[Program]string{}, Load: [2]float64{loadAverage()},
	}
	cpus, _ := os.ReadFile("/proc/cpuinfo")
	if found := modelName.FindSubmatch(cpus); found != nil {
		m.CPU = string(found[1])
	}
	release, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	m.Kernel, _, _ = strings.Cut(strings.TrimSpace(string(release)), "-")
	for program := range programs {
		if v := t.version(ctx, program); v != "" {
			m.Versions[program] = v
		}
	}
	return m
}

// tracked reports whether the kernel counts connections in this file. It still counts those
// of a load that has just ended.
func tracked(file string) bool {
	b, _ := os.ReadFile(file) // the file is missing if nothing tracks
	n, _ := strconv.Atoi(strings.TrimSpace(string(b)))
	return n > 0
}

// loadAverage is that of the last minute; 0 means unknown.
func loadAverage() (load float64) {
	b, _ := os.ReadFile("/proc/loadavg")
	fmt.Sscan(string(b), &load)
	return load
}
