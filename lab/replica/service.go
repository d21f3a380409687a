package replica

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/remora-proxy/remora/lab/precise"
)

// Stats is what a replica counts since its start or its last reset.
type Stats struct {
	Name   string `json:"name"`
	Mode   Mode   `json:"mode"`
	Served int64  `json:"served"` // calls (HTTP: of /compute) worked through, Aborted among them
	// Aborted counts the calls whose caller had gone when the answer was ready:
	// cancelled, or timed out. Their work was done all the same.
	Aborted  int64 `json:"aborted"`
	InFlight int64 `json:"in_flight"`         // calls being worked on now
	Refused  int64 `json:"refused,omitempty"` // Dubbo: calls that found no free worker
	Stalls   int64 `json:"stalls"`            // freezes begun, or caches refilled
}

// A service decides how long a call takes, and counts.
type service struct {
	opts   Options
	cache  *cache // of mode GC, else nil
	answer []byte // the body of a call's answer

	// Tests put a clock of their own in the place of these two.
	now        func() time.Time
	sleepUntil func(time.Time)

	mu       sync.Mutex // guards what follows
	epoch    time.Time
	schedule *Schedule
	rng      *rand.Rand

	served, aborted, inFlight, refused atomic.Int64
}

// answerSize is the length of a call's answer, in bytes.
const answerSize = 200

func newService(opts Options) *service {
	s := &service{opts: opts, now: time.Now, sleepUntil: precise.SleepUntil}
	if opts.Mode == GC {
		s.cache = &cache{entries: opts.CacheEntries, every: opts.StallMean}
	}
	const end = `"}`
	// Options allow no name that JSON would have to escape.
	s.answer = fmt.Appendf(nil, `{"replica":"%s","result":"`, opts.Name)
	for len(s.answer) < answerSize-len(end) {
		s.answer = append(s.answer, 'x')
	}
	s.answer = append(s.answer, end...)
	s.reset(opts.Epoch)
	return s
}

// reset starts the schedule and the service times anew, as if the replica had
// just been made, and sets the counts to 0. Calls being worked on finish as they
// would have.
func (s *service) reset(epoch time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	from := s.now().Sub(epoch)
	mean := s.opts.StallMean
	if s.opts.Mode != Stall && s.opts.Mode != Correlated {
		mean = 0
	}
	s.epoch = epoch
	s.schedule = NewSchedule(s.opts.Seed, mean, s.opts.StallLen, from)
	// The name takes part so that replicas of mode Correlated, which share their
	// seed, do not share their service times.
	name := fnv.New64a()
	name.Write([]byte(s.opts.Name))
	s.rng = rand.New(rand.NewPCG(s.opts.Seed, name.Sum64()))
	s.served.Store(0)
	s.aborted.Store(0)
	s.refused.Store(0)
	if s.cache != nil {
		s.cache.refills.Store(0)
	}
}

// work takes as long as one call takes.
func (s *service) work() {
	if s.opts.Mode == Fast {
		return
	}
	if s.cache != nil {
		s.cache.lookUp()
	}
	s.sleepUntil(s.finish(s.now()))
}

// finish draws a service time and tells when a call that came at start is done.
func (s *service) finish(start time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	work := time.Duration(float64(s.opts.Median) * math.Exp(s.opts.Sigma*s.rng.NormFloat64()))
	return s.epoch.Add(s.schedule.Finish(start.Sub(s.epoch), work))
}

func (s *service) stats() Stats {
	s.mu.Lock()
	stalls := s.schedule.Begun(s.now().Sub(s.epoch))
	s.mu.Unlock()
	if s.cache != nil {
		stalls = s.cache.refills.Load()
	}
	return Stats{
		Name: s.opts.Name, Mode: s.opts.Mode,
		Served: s.served.Load(), Aborted: s.aborted.Load(), InFlight: s.inFlight.Load(),
		Refused: s.refused.Load(), Stalls: stalls,
	}
}
