package collapse

import (
	"bytes"
	"time"

	"github.com/remora-proxy/remora/proxy/caching"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// flightState is where a flight stands.
//
//	flying ──response, second failure──▶ landing ──all have it──▶ landed
//	  └──────────────nobody is left──────────────────────────────▶ landed
type flightState uint8

const (
	flying  flightState = iota // somebody leads, or will soon
	landing                    // waiting members get the response or the failure, or are sent
	landed                     // on the free list
)

var flightEdges = [...][3]bool{
	flying:  {landing: true, landed: true},
	landing: {landed: true},
	landed:  {flying: true},
}

func (s *flightState) become(next flightState) {
	if !flightEdges[*s][next] {
		loop.IllegalState(*s, next)
	}
	*s = next
}

func (s flightState) String() string { return [...]string{"flying", "landing", "landed"}[s] }

// flight is same requests on one loop.
type flight struct {
	filter  *filter
	state   flightState
	hash    uint64
	key     []byte
	leads   [2]*member
	waiting []*member
	busy    bool          // it gives a batch the response
	began   time.Duration // when the latest leader began
	delay   time.Duration // after which a second one does
	timer   loop.Timer
	failed  int // leaders

	res     *race.Response // for all; nil means that each is sent, if failure is nil, too
	names   []byte         // of the headers by which res varies
	variant []byte         // what the request to res has there
	failure *fault.Failure // of all
}

// member is one request of a flight.
type member struct {
	ex     *exchange.Exchange
	flight *flight
	leads  bool
	at     int // in leads or waiting
}

// open begins a flight.
func (f *filter) open(hash uint64, now time.Duration) *flight {
	fl, ok := f.freeFlights.Take()
	if !ok {
		fl = &flight{filter: f, state: landed}
		fl.timer.Fire = fl.onTimer
	}
	fl.state.become(flying)
	fl.hash, fl.began, fl.failed = hash, now, 0
	fl.key = append(fl.key[:0], f.key...)
	f.flights[hash] = fl
	return fl
}

// land closes the flight to requests that come from now on. Those that wait get what it has, in the next turn.
func (fl *flight) land() {
	fl.unlist()
	fl.state.become(landing)
	fl.filter.shard.Loop.After(0, &fl.timer)
}

// end lets go of what the flight has, and keeps the flight itself for another.
func (fl *flight) end() {
	f := fl.filter
	fl.unlist()
	fl.state.become(landed)
	f.shard.Loop.Stop(&fl.timer)
	if fl.res != nil {
		fl.res.Release()
	}
	fl.res, fl.failure = nil, nil
	if cap(fl.key) <= maxKept && cap(fl.waiting) <= maxKept {
		f.freeFlights.Put(fl)
	}
}

// unlist makes further requests not find a flight that is flying. Others are not listed: another flight may have the hash.
func (fl *flight) unlist() {
	if fl.state == flying {
		delete(fl.filter.flights, fl.hash)
	}
}

// lead makes a member a leader.
func (fl *flight) lead(m *member) {
	for i := range fl.leads {
		if fl.leads[i] == nil {
			m.leads, m.at, fl.leads[i] = true, i, m
			return
		}
	}
}

// wait makes a member wait. The first one arms the timer of a second leader.
func (fl *flight) wait(m *member, now, delay time.Duration) {
	if len(fl.waiting) == 0 {
		fl.delay = delay
		fl.filter.shard.Loop.After(max(0, fl.began+delay-now), &fl.timer)
	}
	m.at = len(fl.waiting)
	fl.waiting = append(fl.waiting, m)
	fl.filter.waiting++
}

func (fl *flight) remove(m *member) {
	if m.leads {
		fl.leads[m.at] = nil
		return
	}
	last := len(fl.waiting) - 1
	fl.waiting[m.at] = fl.waiting[last]
	fl.waiting[m.at].at = m.at
	fl.waiting[last] = nil
	fl.waiting = fl.waiting[:last]
	fl.filter.waiting--
}

// leaders is how many members lead.
func (fl *flight) leaders() (n int) {
	for _, m := range fl.leads {
		if m != nil {
			n++
		}
	}
	return n
}

// sample returns any of the requests.
func (fl *flight) sample() *exchange.Exchange {
	for _, m := range fl.leads {
		if m != nil {
			return m.ex
		}
	}
	return fl.waiting[0].ex
}

// settle follows the end of a member.
func (fl *flight) settle() {
	switch {
	case fl.busy:
	case len(fl.waiting) == 0 && fl.leaders() == 0:
		fl.end()
	case fl.state == flying && fl.leaders() == 0:
		fl.filter.shard.Loop.After(0, &fl.timer)
	}
}

// onTimer begins another leader, or gives a batch what it waited for.
func (fl *flight) onTimer() {
	f := fl.filter
	if fl.state == flying {
		if len(fl.waiting) > 0 && fl.leaders() < len(fl.leads) {
			m := fl.waiting[0]
			ex := m.ex
			fl.remove(m)
			fl.lead(m)
			fl.began = f.shard.Loop.Now()
			f.shard.Loop.After(fl.delay, &fl.timer)
			ex.Resume() // fl may be over, or of other requests
		}
		return
	}
	fl.busy = true
	for n, sent := 0, 0; n < batch && sent < batchBytes && len(fl.waiting) > 0; n++ {
		if fl.res != nil {
			sent += len(fl.res.Body)
		}
		fl.serve(fl.waiting[len(fl.waiting)-1])
	}
	if len(fl.waiting) > 0 {
		f.shard.Loop.After(0, &fl.timer)
	}
	fl.busy = false
	fl.settle()
}

// serve gives a member what it waited for.
func (fl *flight) serve(m *member) {
	f, ex := fl.filter, m.ex
	f.leave(m)
	switch {
	case fl.failure != nil:
		ex.Refuse(fl.failure)
	case fl.res != nil && fl.fits(ex):
		f.counts.Collapsed++
		ex.Cached = stats.CacheCollapsed
		ex.Answer(fl.res.Alias())
	default:
		f.counts.CollapseAlone++
		ex.Resume()
	}
}

// fits reports whether the request has the same values as that to fl.res where the response varies.
func (fl *flight) fits(ex *exchange.Exchange) bool {
	if len(fl.names) == 0 {
		return true
	}
	f := fl.filter
	f.key = caching.AppendVariant(f.key[:0], fl.names, ex.Request.Headers)
	return bytes.Equal(f.key, fl.variant)
}
