package bench

import (
	"bytes"
	"context"
	"fmt"
	"os"
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

func describeMachine(ctx context.Context, t Tools) Machine {
	m := Machine{CPU: cpuModel(), Cores: runtime.NumCPU(), Go: runtime.Version(), Versions: map[Program]string{}}
	m.Load[0] = loadAverage()
	if b, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.Kernel, _, _ = strings.Cut(strings.TrimSpace(string(b)), "-")
	}
	for program := range versions {
		if v := t.version(ctx, program); v != "" {
			m.Versions[program] = v
		}
	}
	return m
}

// String describes m in one line.
func (m Machine) String() string {
	s := fmt.Sprintf("%d × %s, Linux %s, %s", m.Cores, m.CPU, m.Kernel, m.Go)
	for _, p := range []Program{Remora, HAProxy, Nginx, Envoy, Wrk} {
		if v := m.Versions[p]; v != "" {
			s += fmt.Sprintf(", %s %s", p, v)
		}
	}
	tracking := "off"
	if m.Tracked {
		tracking = "on"
	}
	return s + fmt.Sprintf("; netfilter connection tracking %s; load average %.1f before, %.1f after", tracking, m.Load[0], m.Load[1])
}

// after adds what is known only at the end of the run.
func (m *Machine) after() {
	m.Load[1] = loadAverage()
	m.Tracked = tracked("/proc/sys/net/netfilter/nf_conntrack_count")
}

// tracked reports whether the kernel counts connections in this file. It still counts those
// of a load that has just ended.
func tracked(file string) bool {
	b, _ := os.ReadFile(file) // the file is missing if nothing tracks
	n, _ := strconv.Atoi(strings.TrimSpace(string(b)))
	return n > 0
}

// cpuModel is the processor's name, or its architecture if it has no name.
func cpuModel() string {
	b, _ := os.ReadFile("/proc/cpuinfo")
	for line := range bytes.Lines(b) {
		if key, value, ok := strings.Cut(string(line), ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

// loadAverage is that of the last minute; 0 means unknown.
func loadAverage() (load float64) {
	if b, err := os.ReadFile("/proc/loadavg"); err == nil {
		fmt.Sscan(string(b), &load)
	}
	return load
}
