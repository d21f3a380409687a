package sidecar

import (
	"os"
	"runtime/debug"
	"runtime/metrics"
)

const (
	// lowPercent is GOGC, in percent of the live heap, of a sidecar that knows much. What thousands of endpoints take
	// hardly changes, and a request makes no garbage. So GOGC 100, which lets garbage grow as large as the live
	// heap, would save few collections.
	lowPercent = 50

	usualPercent = 100

	// muchLive is the live heap, in bytes, from which on a sidecar knows much. Even at lowPercent such a sidecar makes more
	// garbage between two collections than the smallest sidecar at usualPercent.
	muchLive = 12 << 20
)

// PaceStart makes the garbage collector run sooner until the sidecar serves: a start throws away more than what stays, and
// the process would keep the pages. GOGC overrides it.
func PaceStart() { pace(lowPercent) }

// paceCollector sets how soon the garbage collector runs, after a start or a reload, by the live heap of the latest
// collection. Endpoints that come later count at the next reload.
func paceCollector() {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	pace(percentOf(live[0].Value.Uint64()))
}

// percentOf returns GOGC for so many bytes of live heap.
func percentOf(live uint64) int {
	if live >= muchLive {
		return lowPercent
	}
	return usualPercent
}

func pace(percent int) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}
