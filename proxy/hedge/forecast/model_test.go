package forecast

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/modeltest"
)

// TestConstants shows what happens at half and at twice each constant of the model. The measure changes
// by at least a tenth.
func TestConstants(t *testing.T) {
	m := modeltest.New(t, &model, .1)
	m.Check("kept: at 100 requests a second, primaries are forgotten earlier or later",
		modeltest.Of(&model.kept), secondsKept, -1, 1)
	m.Check("reach: requests find another up to a shorter or longer time away",
		modeltest.Of(&model.reach), millisecondsReached, -1, 1)
	m.Check("noteEvery: more or fewer primaries of 10,000 a second are noted",
		modeltest.Of(&model.noteEvery), notedOfSecond, 1, -1)
	m.Check("asks: a request that finds no available endpoint asks for a shorter or longer time",
		modeltest.Of(&model.asks), millisecondsAsked, -1, 1)
	m.Check("half: at 1,000 requests a second, a request counts for a shorter or longer time",
		modeltest.Of(&model.half), func() float64 { return secondsCounted(1000) }, -1, 1)
	m.Check("enough: at 50 requests a second, a request counts for a shorter or longer time",
		modeltest.Of(&model.enough), func() float64 { return secondsCounted(50) }, -1, 1)
	m.Check("halfMost: at a request a second, a request counts for a shorter or longer time",
		modeltest.Of(&model.halfMost), func() float64 { return secondsCounted(1) }, -1, 1)
}

// secondsKept returns for how long a primary is remembered at 100 requests a second.
func secondsKept() float64 {
	r := &route{Shadow: New(defaults()), delay: ms}
	var last time.Duration
	for at := time.Duration(0); at < 20*time.Second; at += 10 * ms {
		r.serve(at, ms/2)
		last = at
	}
	return (last - time.Duration(r.timeline.at(r.timeline.oldest()).sent)*timelineUnit).Seconds()
}

// millisecondsReached returns how far from a time a primary may have been sent to stand for it.
func millisecondsReached() float64 {
	var l timeline
	l.note(time.Second, 1, ms)
	far := time.Duration(0)
	for l.near(time.Second+far, 2) != nil {
		far += ms
	}
	return far.Seconds() * 1000
}

// notedOfSecond returns how many of 10,000 requests in a second are noted.
func notedOfSecond() float64 {
	r := &route{Shadow: New(defaults()), delay: ms}
	for i := range 10_000 {
		r.serve(time.Second+time.Duration(i)*ms/10, ms/2)
	}
	return float64(r.timeline.added)
}

// millisecondsAsked returns when a request whose delay is 1 ms asks for the last time if no other endpoint is
// available for long.
func millisecondsAsked() (latest float64) {
	for free := 2 * ms; free < 200*ms; free += ms {
		r := &route{Shadow: New(defaults()), delay: ms}
		w := Watch{Watched: true, Asked: time.Second + ms}
		r.send(time.Second, &w, 0, false)
		for at := ms; at < 200*ms; at += ms {
			r.send(time.Second+at, new(Watch), 1, at < free)
		}
		r.primaries++
		r.end(time.Second+200*ms, &w, false)
		if r.current(time.Second+200*ms).Hedges > 0 {
			latest = free.Seconds() * 1000
		}
	}
	return latest
}

// secondsCounted returns for how long a request of the first seconds counts, at a rate.
func secondsCounted(rate time.Duration) float64 {
	r := &route{Shadow: New(defaults()), delay: ms}
	for at := time.Duration(0); ; at += time.Second / rate {
		r.serve(at, ms/2)
		if r.halves[1] != nil && r.halves[1].began > 0 {
			return at.Seconds()
		}
	}
}
