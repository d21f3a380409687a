package replica

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/remora-proxy/remora/lab/feature"
	"github.com/remora-proxy/remora/lab/precise"
	"github.com/remora-proxy/remora/lab/wire"
)

// Stats are the counts of a replica since its start or its last reset.
type Stats struct {
	Name   string `json:"name"`
	Mode   Mode   `json:"mode"`
	Served int64  `json:"served"` // completed requests (HTTP: of /compute), also Aborted ones
	// Aborted counts requests whose client had left before the response. Their work was done.
	Aborted  int64 `json:"aborted"`
	InFlight int64 `json:"in_flight"`         // requests in flight
	Refused  int64 `json:"refused,omitempty"` // Dubbo: calls without a free worker
	Stalls   int64 `json:"stalls"`            // freezes begun, or caches refilled

	// Of the local cache, if there is a store: batches looked up, those found whole, and keys now.
	Lookups int64 `json:"lookups,omitempty"`
	Hits    int64 `json:"hits,omitempty"`
	Entries int   `json:"entries,omitempty"`
}

// service decides how long a request takes, and counts.
type service struct {
	opts   Options
	cache  *cache // of mode GC, else nil
	local  *local // if there is a store, else nil
	fields string // of each response: wire.Message.AppendResponse
	body   []byte // of a response to /compute

	// Tests replace these two by their own clock.
	now        func() time.Time
	sleepUntil func(time.Time)

	mu       sync.Mutex // guards the fields below
	epoch    time.Time
	schedule *Schedule
	stalls   int64         // freezes begun since the last reset
	counted  time.Duration // offset up to which stalls counts
	rng      *rand.Rand
	free     []time.Time // when each worker is free; empty without a limit

	served, aborted, inFlight, refused atomic.Int64

	logging sync.Mutex // held while opts.Log is written
}

// bodySize is the length of a response's body, in bytes.
const bodySize = 200

func newService(opts Options) *service {
	s := &service{opts: opts, fields: "x-replica: " + opts.Name + "\r\n", now: time.Now, sleepUntil: precise.SleepUntil}
	if opts.Mode == GC {
		s.cache = &cache{kind: opts.CacheKind, entries: opts.CacheEntries, every: opts.StallMean, rng: rand.New(rand.NewPCG(opts.Seed, 0))}
	}
	if opts.Store != "" {
		s.local = newLocal(opts)
	}
	if opts.Protocol == HTTP {
		s.free = make([]time.Time, opts.Workers)
	}
	// Options allow no name that JSON must escape.
	const format = `{"replica":"%s","result":"%s"}`
	filler := bodySize + len("%s%s") - len(format) - len(opts.Name)
	s.body = fmt.Appendf(nil, format, opts.Name, strings.Repeat("x", filler))
	s.reset(opts.Epoch)
	return s
}

// reset restarts the schedule, the service times and the counts, but not requests in flight.
func (s *service) reset(epoch time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	mean := s.opts.StallMean
	if s.opts.Mode != Stall && s.opts.Mode != Correlated {
		mean = 0
	}
	s.epoch, s.stalls, s.counted = epoch, 0, s.now().Sub(epoch)
	s.schedule = NewSchedule(s.opts.Seed, mean, s.opts.StallLen)
	// Replicas of mode Correlated share their seed, but must not share their service times.
	name := fnv.New64a()
	name.Write([]byte(s.opts.Name))
	s.rng = rand.New(rand.NewPCG(s.opts.Seed, name.Sum64()))
	s.served.Store(0)
	s.aborted.Store(0)
	s.refused.Store(0)
	if s.cache != nil {
		s.cache.refills.Store(0)
	}
	if s.local != nil {
		s.local.reset()
	}
}

// log writes that the work of a request begins.
func (s *service) log(nonce []byte) {
	if s.opts.Log == nil {
		return
	}
	if len(nonce) == 0 {
		nonce = []byte("-")
	}
	s.logging.Lock()
	defer s.logging.Unlock()
	fmt.Fprintf(s.opts.Log, "%d %s\n", s.now().UnixMicro(), nonce)
}

// What the size of a batch costs beside the draw of a service time.
const (
	perKey    = 100 * time.Nanosecond
	heavyKeys = 100 // mode Unequal: a tenth of the requests has more
)

// compute serves a request to /compute, and returns the status of its response. An error is its
// body if that is not 200.
func (s *service) compute(m *wire.Message) (int, error) {
	if s.local == nil {
		s.work(s.byNature(m.Nonce))
		return 200, nil
	}
	r, err := feature.ParseKey(string(m.Key))
	if err != nil {
		return 400, err
	}
	s.sleepUntil(s.thaw()) // a frozen replica asks no store
	if s.cache != nil {
		s.cache.lookUp()
	}
	if err := s.local.get(&r); err != nil {
		return 503, err
	}
	extra := perKey * time.Duration(r.Keys())
	if s.opts.Mode == Unequal && r.Keys() > heavyKeys {
		extra += 10 * s.opts.Median
	}
	s.sleepUntil(s.finish(s.now(), extra))
	return 200, nil
}

// byNature returns how much longer than a draw a request takes by its nature.
func (s *service) byNature(nonce []byte) time.Duration {
	if s.opts.Service != Natural {
		return 0
	}
	h := fnv.New64a()
	h.Write(nonce)
	if h.Sum64()%10 > 0 {
		return 0
	}
	return 10 * s.opts.Median
}

// work takes as long as one request, and extra.
func (s *service) work(extra time.Duration) {
	if s.opts.Mode == Fast {
		return
	}
	if s.cache != nil {
		s.cache.lookUp()
	}
	s.sleepUntil(s.finish(s.now(), extra))
}

// finish draws a service time, adds extra, and returns the end of a request that came at start. With
// workers it waits for the first that is free.
func (s *service) finish(start time.Time, extra time.Duration) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	work := time.Duration(float64(s.opts.Median)*s.draw()) + extra
	if len(s.free) == 0 {
		return s.epoch.Add(s.schedule.Finish(start.Sub(s.epoch), work))
	}
	worker := 0
	for i, at := range s.free {
		if at.Before(s.free[worker]) {
			worker = i
		}
	}
	if at := s.free[worker]; at.After(start) {
		start = at
	}
	s.free[worker] = s.epoch.Add(s.schedule.Finish(start.Sub(s.epoch), work))
	return s.free[worker]
}

// thaw returns the end of the freeze that lasts, or now.
func (s *service) thaw() time.Time {
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.epoch.Add(s.schedule.Finish(now.Sub(s.epoch), 0))
}

// draw returns a service time in medians.
func (s *service) draw() float64 {
	work := s.drawUsual()
	if s.opts.Stragglers > 0 && s.rng.Float64() < s.opts.Stragglers {
		work += s.opts.StragglerLen.Seconds() / s.opts.Median.Seconds()
	}
	return work
}

// drawUsual is draw for an attempt that is no straggler.
func (s *service) drawUsual() float64 {
	if s.opts.Service == Exponential {
		return s.rng.ExpFloat64()
	}
	work := math.Exp(s.opts.Sigma * s.rng.NormFloat64())
	if s.opts.Service == Bimodal && s.rng.Float64() < 0.1 {
		work += 10
	}
	return work
}

func (s *service) stats() Stats {
	s.mu.Lock()
	if now := s.now().Sub(s.epoch); now > s.counted {
		s.stalls += s.schedule.Begun(s.counted, now)
		s.counted = now
	}
	stalls := s.stalls
	s.mu.Unlock()
	if s.cache != nil {
		stalls = s.cache.refills.Load()
	}
	all := Stats{
		Name: s.opts.Name, Mode: s.opts.Mode,
		Served: s.served.Load(), Aborted: s.aborted.Load(), InFlight: s.inFlight.Load(),
		Refused: s.refused.Load(), Stalls: stalls,
	}
	if s.local != nil {
		s.local.addStats(&all)
	}
	return all
}
