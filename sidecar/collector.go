package sidecar

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
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

	// TLS handshakes and streams make garbage. Collections are frequent if usualPercent would bring so many a second. Then
	// about busyGarbage bytes of garbage may grow between two.
	frequent    = 5
	busyGarbage = 16 << 20
)

// PaceStart makes the garbage collector run sooner until the sidecar serves: a start throws away more than what stays, and
// the process would keep the pages. GOGC overrides it.
func PaceStart() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(lowPercent)
	}
}

// paceCollector sets how soon the garbage collector runs, now and after collections, until ended is done. GOGC overrides it.
func paceCollector(ended context.Context) {
	if os.Getenv("GOGC") != "" {
		return
	}
	count, live := collections()
	p := &pace{since: time.Now(), count: count}
	p.set(percentOf(live))
	afterCollections(ended, func() {
		count, live := collections()
		p.set(p.collected(time.Now(), count, live))
	})
}

// collections returns how many collections there have been, and how many bytes were alive at the latest.
func collections() (count, live uint64) {
	samples := []metrics.Sample{{Name: "/gc/cycles/total:gc-cycles"}, {Name: "/gc/heap/live:bytes"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64(), samples[1].Value.Uint64()
}

// afterCollections calls f after a collection, and after the next, one call at a time, until ended is done. It may miss one that follows
// at once.
func afterCollections(ended context.Context, f func()) {
	type garbage struct{ _ *garbage } // with a pointer, since objects without may share memory
	runtime.AddCleanup(new(garbage), func(f func()) {
		if ended.Err() == nil {
			f()
			afterCollections(ended, f)
		}
	}, f)
}

// pace is how soon the garbage collector runs.
type pace struct {
	percent int // GOGC; 0 means that it was not set
	isBusy  bool

	since time.Time // when it was last known how frequent collections are,
	count uint64    // and how many there had been
}

func (p *pace) set(percent int) {
	if percent != p.percent {
		p.percent = percent
		debug.SetGCPercent(percent)
	}
}

// collected returns GOGC after a collection. There have been so many, and the last left so many bytes alive. When collections end, it
// stays until the next, after two minutes at most.
func (p *pace) collected(now time.Time, count, live uint64) (percent int) {
	if taken := now.Sub(p.since); taken >= time.Second {
		// With usualPercent there would be more collections, in proportion.
		usual := float64(count-p.count) / taken.Seconds() * float64(p.percent) / usualPercent
		p.isBusy, p.since, p.count = usual >= frequent, now, count
	}
	if p.isBusy {
		for percent = 4 * usualPercent; percent > usualPercent; percent /= 2 {
			if live*uint64(percent) <= busyGarbage*100 {
				return percent
			}
		}
	}
	return percentOf(live)
}

// percentOf returns GOGC for so many bytes of live heap while collections are not frequent.
func percentOf(live uint64) int {
	if live >= muchLive {
		return lowPercent
	}
	return usualPercent
}
