package admin

import (
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/remora-proxy/remora/proxy/overload"
)

// processCollector exports values of the operating system for the process, under the
// common names of Prometheus clients. collectors.NewProcessCollector reads more of /proc,
// and takes as long as the rest of a scrape.
type processCollector struct{ began time.Time }

// Describe implements prometheus.Collector.
func (c processCollector) Describe(ch chan<- *prometheus.Desc) {
	prometheus.DescribeByCollect(c, ch)
}

// Collect implements prometheus.Collector. It omits values that the system does not have.
func (c processCollector) Collect(ch chan<- prometheus.Metric) {
	put := func(name, help string, kind prometheus.ValueType, v float64) {
		desc := prometheus.NewDesc("process_"+name, help, nil, nil)
		ch <- prometheus.MustNewConstMetric(desc, kind, v)
	}
	var used syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &used) == nil {
		cpu := time.Duration(used.Utime.Nano() + used.Stime.Nano())
		put("cpu_seconds_total", "CPU time used, by user and system.", prometheus.CounterValue, cpu.Seconds())
	}
	if n, ok := residentMemory(); ok {
		put("resident_memory_bytes", "Memory in use.", prometheus.GaugeValue, n)
	}
	if n, ok := openFDs(); ok {
		put("open_fds", "Open file descriptors.", prometheus.GaugeValue, n)
	}
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) == nil {
		put("max_fds", "How many file descriptors may be open.", prometheus.GaugeValue, float64(limit.Cur))
	}
	put("start_time_seconds", "When the process started, since the epoch.",
		prometheus.GaugeValue, float64(c.began.UnixMilli())/1e3)
}

// residentMemory returns the resident memory (proc(5), /proc/pid/statm).
func residentMemory() (bytes float64, ok bool) {
	text, _ := os.ReadFile("/proc/self/statm")
	var total, resident int64
	n, _ := fmt.Sscan(string(text), &total, &resident)
	return float64(resident) * float64(os.Getpagesize()), n == 2
}

// openFDs returns the number of open descriptors.
func openFDs() (n float64, ok bool) {
	if n, ok := overload.OpenFiles(); ok {
		return float64(n), true
	}
	all, err := os.ReadDir("/proc/self/fd")
	return float64(len(all)), err == nil
}
