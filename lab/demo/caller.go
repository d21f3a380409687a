package demo

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/remora-proxy/remora/lab/feature"
	"github.com/remora-proxy/remora/lab/load"
	"github.com/remora-proxy/remora/lab/report"
)

// totals is what the calls of the API tier's users came to. Calls index, index+1 .. of a fan-out
// are of one user.
type totals struct {
	epoch            time.Time // a minute begins
	minute, deadline time.Duration
	fanOut           int
	users            map[int]*user // with calls in flight, by number

	second0, later part // of minutes
}

type user struct {
	ended   int // calls
	slowest time.Duration
}

// part is the calls that were due in a part of a minute.
type part struct {
	calls, errors    int64
	users            int64
	latency, slowest *hdrhistogram.Histogram // nanoseconds; slowest: of users
}

func newPart() part {
	histogram := func() *hdrhistogram.Histogram { return hdrhistogram.New(1000, int64(time.Minute), 3) }
	return part{latency: histogram(), slowest: histogram()}
}

func newTotals(epoch time.Time, minute, deadline time.Duration, fanOut int) *totals {
	return &totals{epoch: epoch, minute: minute, deadline: deadline, fanOut: fanOut, users: map[int]*user{},
		second0: newPart(), later: newPart()}
}

// add counts a call that has ended. An error is a response after the deadline, or none: its latency
// counts as the deadline at least, however soon it failed.
func (t *totals) add(e load.End) {
	p := &t.later
	if feature.InWindow(e.Due.Sub(t.epoch), t.minute) {
		p = &t.second0
	}
	p.calls++
	latency := e.Latency
	if e.Kind != "" || latency > t.deadline {
		p.errors++
		latency = max(latency, t.deadline)
	}
	record(p.latency, latency)
	u := t.users[e.Index/t.fanOut]
	if u == nil {
		u = &user{}
		t.users[e.Index/t.fanOut] = u
	}
	u.ended++
	u.slowest = max(u.slowest, latency)
	if u.ended == t.fanOut {
		delete(t.users, e.Index/t.fanOut)
		p.users++
		record(p.slowest, u.slowest)
	}
}

func record(h *hdrhistogram.Histogram, d time.Duration) {
	_ = h.RecordValue(int64(min(d, time.Minute))) // in range: it can't fail
}

// fill puts the figures of t into p.
func (t *totals) fill(p *report.FeaturePhase) {
	at := func(h *hdrhistogram.Histogram, q float64) float64 {
		return ms(time.Duration(h.ValueAtQuantile(100 * q)))
	}
	p.Requests, p.Users = t.second0.calls+t.later.calls, t.second0.users+t.later.users
	p.P50, p.P99, p.P999 = at(t.later.latency, .5), at(t.later.latency, .99), at(t.later.latency, .999)
	if p.Slowest = at(t.later.slowest, .99); t.fanOut == 10 {
		p.Slowest10 = &p.Slowest
	}
	p.Errors = permille(t.second0.errors+t.later.errors, p.Requests)
	p.Second0 = report.Second0{
		Requests: t.second0.calls, P99: at(t.second0.latency, .99), Errors: permille(t.second0.errors, t.second0.calls),
	}
}

func permille(n, of int64) float64 { return 1000 * float64(n) / float64(max(1, of)) }
