// Package cpuquota says how many CPUs this process may use.
package cpuquota

import (
	"math"
	"os"
	"path"
	"runtime"
	"strconv"
	"strings"
)

// Whole returns the integer part of Read, at least 1. So many threads can always run: with more, the kernel
// throttles them all.
func Whole() int { return whole(Read()) }

func whole(quota float64) int {
	if math.IsNaN(quota) || quota < 1 {
		return 1
	}
	return int(min(quota, math.MaxInt32))
}

// Read returns the number of CPUs that this process may use: the least of its
// affinity and the limits of its control groups, version 2 and 1.
func Read() float64 { return quota("/", float64(runtime.NumCPU())) }

func quota(root string, cpus float64) float64 {
	groups, err := os.ReadFile(path.Join(root, "proc/self/cgroup"))
	if err != nil {
		return cpus
	}
	for line := range strings.Lines(string(groups)) {
		// hierarchy:controllers:path
		part := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(part) != 3 {
			continue
		}
		base := path.Join(root, "sys/fs/cgroup")
		if part[0] == "0" && part[1] == "" {
			cpus = walk(base, part[2], cpus, limitV2)
			cpus = walk(path.Join(base, "unified"), part[2], cpus, limitV2)
			continue
		}
		for name := range strings.SplitSeq(part[1], ",") {
			if name == "cpu" {
				cpus = walk(path.Join(base, "cpu"), part[2], cpus, limitV1)
				cpus = walk(path.Join(base, part[1]), part[2], cpus, limitV1)
			}
		}
	}
	return cpus
}

// walk returns the least of cpus and the limits from group up to the mount point: the limits
// of its parents bind a group too. Inside a container the path may be the host's, and only the
// mount point may exist.
func walk(base, group string, cpus float64, limit func(dir string) float64) float64 {
	for dir := path.Join("/", group); ; dir = path.Dir(dir) {
		if n := limit(path.Join(base, dir)); n > 0 {
			cpus = min(cpus, n)
		}
		if dir == "/" {
			return cpus
		}
	}
}

// limitV2 reads cpu.max ("quota period", or "max period"). 0 means no limit.
func limitV2(dir string) float64 {
	quota, period, _ := strings.Cut(textOf(dir, "cpu.max"), " ")
	return ratio(quota, period)
}

// limitV1 reads cpu.cfs_quota_us, -1 without a limit, and cpu.cfs_period_us. 0 means no limit.
func limitV1(dir string) float64 {
	return ratio(textOf(dir, "cpu.cfs_quota_us"), textOf(dir, "cpu.cfs_period_us"))
}

func textOf(dir, file string) string {
	b, _ := os.ReadFile(path.Join(dir, file))
	return strings.TrimSpace(string(b))
}

// ratio returns 0 unless both are positive numbers.
func ratio(quota, period string) float64 {
	q, err := strconv.ParseFloat(quota, 64)
	p, err2 := strconv.ParseFloat(period, 64)
	if err != nil || err2 != nil || q <= 0 || p <= 0 {
		return 0
	}
	return q / p
}
