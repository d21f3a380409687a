package service

import (
	"cmp"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/lb/outlier"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/hedge"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
	"github.com/remora-proxy/remora/proxy/unwanted"
	"github.com/remora-proxy/remora/registry"
)

// Service keeps what the requests to one upstream service share on one loop together, through snapshots and reloads.
// Each kind of what they share is a type of its own: the endpoints (lb.Set), slots (Admission),
// what more attempts cost (Budget), attempts that nobody awaits (unwanted.Work), the bounds (Bounds), cookies (Sessions), common silence (stalls), hedging
// (hedge.Service) and counters. Callers use the parts; the methods of Service are for what takes several of them.
type Service struct {
	Shard      *shard.Shard
	log        *shard.LimitedLogger // limits lines of this service alone
	connectors Protocols
	Shared     *SharedService
	Config     *config.Service
	Bounds     *Bounds
	Set        lb.Set
	Sessions   *Sessions   // nil means none
	Version    uint64      // of the snapshot in Set; 0 means none yet
	known      atomic.Bool // a snapshot was applied; other goroutines read it
	Opaque     bool        // it accepts streams of bytes, and no requests
	lastID     uint32      // the last id given to an endpoint
	Hedging    hedge.Service
	Admission  Admission
	Budget     Budget
	Unwanted   unwanted.Work
	Stats      stats.ServiceStats

	watched *watch // of this service alone; nil unless somebody looks at it

	Routes  []HedgedRoute // of the routes to this service; exchange.Router sets them
	stalls  stalls
	Probes  Probes
	latency lb.Recent // of the application, for LOAD
}

func newService(w *shard.Shard, zone string, speaks Protocols, m Member) *Service {
	s := &Service{
		Shard: w, log: w.Log.Separate(), connectors: speaks, Shared: m.SharedService,
		Hedging: hedge.NewService(w.Process.Loops),
	}
	s.Admission.init(s)
	s.Budget = Budget{service: s}
	s.stalls.init(s)
	s.Probes.init(s)
	s.Set.Zone, s.Set.Loops = zone, w.Process.Loops
	s.Configure(m)
	return s
}

// apply switches to a snapshot unless a newer one was applied. Endpoints that stay keep
// connections and history; removed ones finish what is in flight. targets are the endpoints of
// the snapshot that this process uses, own the counters of its attempts.
func (s *Service) apply(snap *registry.Snapshot, targets []lb.Target, own map[string]*atomic.Int32) {
	if snap.Version <= s.Version {
		return
	}
	s.Version = snap.Version
	defer s.known.Store(true)
	_, removed := s.Set.Update(targets)
	for _, e := range removed {
		e.Ext.(*Endpoint).retire()
		s.Probes.pool.Forget(e)
	}
	for i := range snap.Endpoints {
		e := s.Set.Lookup(snap.Endpoints[i].Addr)
		if e == nil { // outside the subset
			continue
		}
		e.CountIn(own[e.Addr])
		s.adopt(e, cmp.Or(snap.Endpoints[i].Protocol, s.Config.Protocol))
	}
	s.Sessions.updatePins(&s.Set)
}

// Query returns the query of a pick now.
func (s *Service) Query(key uint64, tried []*lb.Endpoint) lb.Query {
	return lb.Query{Now: s.Shard.Loop.Now(), Rand: s.Shard.Rand, Key: key, Tried: tried}
}

// Pick chooses the endpoint of a primary or a retry. A retry prefers endpoints that
// were not tried, then those other than failed, where the latest attempt failed.
func (s *Service) Pick(q lb.Query, failed []*lb.Endpoint) *lb.Endpoint {
	s.stalls.keepFresh(q.Now)
	if ep := s.Set.Pick(q); ep != nil || len(q.Tried) == 0 {
		return ep
	}
	q.Tried = failed
	if ep := s.Set.Pick(q); ep != nil {
		return ep
	}
	q.Tried = nil
	return s.Set.Pick(q)
}

// HasOther reports whether the service has an endpoint that is none of tried.
func (s *Service) HasOther(tried []*lb.Endpoint) bool {
	for i := range s.Set.Len() {
		if !slices.Contains(tried, s.Set.At(i)) {
			return true
		}
	}
	return false
}

// A service counts by the millisecond for watchTime after it was last asked for the counts, and
// maxWatched of a loop do so at a time: each takes 128 KiB.
const (
	watchTime  = 10 * time.Second
	maxWatched = 4
)

// watch is the counts by the millisecond, until end fires.
type watch struct {
	stats.MillisecondRing
	end loop.Timer
}

// Milliseconds returns the milliseconds of the service from number from on. The first call makes
// it count them. ok is false if too many services do.
func (s *Service) Milliseconds(from int64) (m stats.Milliseconds, ok bool) {
	w := s.Shard
	if s.watched == nil {
		if w.Watched >= maxWatched {
			return m, false
		}
		w.Watched++
		s.watched = new(watch)
		s.watched.end.Fire = func() { s.watched, w.Watched = nil, w.Watched-1 }
	}
	w.Loop.After(watchTime, &s.watched.end)
	return s.watched.Since(from, w.Loop.Now()), true
}

// Alone reports whether the service has one endpoint at most.
func (s *Service) Alone() bool { return s.Set.Len() <= 1 }

// Load is the load that this sidecar reports to the sidecars of its consumers. Batch requests
// that wait are not load: they wait for any other that comes.
func (s *Service) Load() lb.Load {
	online, batch := s.Shared.slots.Waiting.Load()
	l := lb.Load{
		Pending:       max(0, s.Shared.InFlight()-int(batch)), // other loops count meanwhile
		Queued:        int(online),
		Latency:       s.latency.Mean(),
		SinceResponse: -1,
	}
	if last := time.Duration(s.Shared.lastAnswer.Load()); last != 0 {
		l.SinceResponse = max(0, s.Shard.Loop.Now()-last)
	}
	return l
}

// Configure applies the settings that can change while the service works.
func (s *Service) Configure(m Member) {
	s.Config, s.Bounds = m.cfg, m.bounds
	s.Opaque = s.connectors[m.cfg.Protocol].Opaque
	s.configureSessions()
	s.Set.Policy = lb.PolicyOf(s.Config.LB.Policy)
	s.Set.Balance = s.Config.LB.Hash.Balance
	s.Set.SlowStart = s.Config.LB.SlowStart
	s.Set.PanicThreshold = s.Config.LB.Panic
	s.Set.Outlier = outlier.Rules{
		Consecutive: s.Config.Outlier.Consecutive,
		SuccessRate: s.Config.Outlier.SuccessRate,
		Latency:     float64(s.Config.Outlier.Latency),
		Base:        s.Config.Outlier.Base,
		MaxEjected:  s.Config.Outlier.MaxEjected,
	}
	s.Unwanted.Mode, s.Unwanted.Loops = unwantedModes[s.Config.Cancel], s.Set.Loops
	s.Set.Retune()
	s.stalls.outdate()
	s.Admission.wakeQueued()
}

// unwantedModes has the values of the setting cancel.
var unwantedModes = map[string]unwanted.Mode{
	config.CancelFinish: unwanted.Finish, config.CancelAuto: unwanted.Auto, config.CancelClose: unwanted.Close,
}

// Retire ends the service: connections close once nothing is in flight on them.
func (s *Service) Retire() {
	for i := range s.Set.Len() {
		s.Set.At(i).Ext.(*Endpoint).retire()
	}
}

// DialFailed logs that a dial to addr ended with err, and returns the failure of the attempts
// that needed it. A nil err, when the process ends, is not logged.
func (s *Service) DialFailed(addr string, err error) *fault.Failure {
	if errors.Is(err, loop.ErrDialQueue) {
		return fault.DialLimit
	}
	if err != nil {
		s.log.Warn("endpoint not connected", "service", s.Config.Name, "endpoint", addr, "error", err)
	}
	return fault.Connect
}

// Arrived counts a request of so many bytes, which began at a time.
func (s *Service) Arrived(began time.Duration, bytes int) {
	s.Stats.Requests++
	s.Stats.BytesIn += uint64(bytes)
	if s.watched != nil {
		s.watched.Now(began).CountRequest(bytes)
	}
}

// Concluded counts the outcome of a request, whose response has so many bytes. Its latency counts if it is
// measured.
func (s *Service) Concluded(now time.Duration, o stats.Outcome, bytes int, latency time.Duration, measured bool) {
	if s.watched != nil && o != stats.OutcomeCancelled {
		s.watched.Now(now).CountResponse(bytes, latency, measured)
	}
	s.Stats.Outcomes[o]++
	s.Stats.BytesOut += uint64(bytes)
	if measured {
		s.Stats.Latency.Observe(latency)
	}
}

// Responded notes that an endpoint has responded, after latency; 0 means that its time says nothing.
func (s *Service) Responded(now, latency time.Duration) {
	s.Shared.lastAnswer.Store(int64(now))
	s.Took(now, latency)
}

// Took notes how long the application took for a request; 0 means that its time says nothing.
func (s *Service) Took(now, latency time.Duration) {
	if latency > 0 {
		s.latency.Add(now, latency)
	}
}

// Largest returns the connection to an endpoint that holds the most for each of its
// requests, if that is more than rank bytes; else h is nil.
func (s *Service) Largest(rank int) (held, each int, h shard.Holder) {
	each = rank
	for i := range s.Set.Len() {
		up := s.Set.At(i).Ext.(*Endpoint).upstream
		if up == nil {
			continue
		}
		if n, m, c := up.Largest(); c != nil && m > each {
			held, each, h = n, m, c
		}
	}
	return held, each, h
}
