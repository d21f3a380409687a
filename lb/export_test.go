package lb

import (
	"math"
	"time"

	"github.com/remora-proxy/remora/lb/log2"
)

// PerWeight returns the load of e per weight.
func (v *View) PerWeight(e *Endpoint) float64 { return e.perWeight(e.load(v.Now)) }

// At returns the i-th endpoint.
func (v *View) At(i int) *Endpoint { return v.group.endpoints[i] }

// Score returns the value that LeastPending compares.
func (v *View) Score(e *Endpoint) float64 { return v.score(e) }

// score returns the value that LeastPending compares at a time.
func score(e *Endpoint, now time.Duration) float64 {
	v := View{Query: Query{Now: now}}
	return v.score(e)
}

// Constants that tests scale, and values of others.
var (
	QueueCost = &queueCost
	DrawUpTo  = &drawUpTo
)

const (
	ScanUpTo      = scanUpTo
	PickFade      = pickFade
	PickFadeLeast = pickFadeLeast
	PacePower     = float64(pacePower)
	RankMemory    = float64(rankMemory)
)

// ChooseScanning is LeastPending.Choose for equal weights, with another scanUpTo.
func (v *View) ChooseScanning(upTo int) *Endpoint {
	if v.Len() > upTo {
		if e := v.cheapestOfDrawn((*View).score); e != nil {
			return e
		}
	}
	return v.cheapestOfAll((*View).score)
}

// SetReportLife sets how long the last report of e, which came with a latency, distinguishes e in picks: as with other values
// of pickFade and pickFadeLeast.
func (e *Endpoint) SetReportLife(latency time.Duration, fade float64, least time.Duration) {
	e.report.life = max(time.Duration(float64(latency)/fade), least)
}

// SetPacePower makes the load of e count as with another pacePower. Learn makes it count as usual again.
func (e *Endpoint) SetPacePower(power float64) {
	if s := &e.slowness; s.usual > 0 {
		slower := log2.Of(time.Duration(s.usual)) - e.peers.pace.mean
		s.factor = log2.Exp(power * slower)
	}
}

// PickWithMemory is Pick with another rankMemory: it scales the ages of recent latencies, which are compared with that.
func (s *Set) PickWithMemory(q Query, memory float64) *Endpoint {
	saved := make([]time.Duration, s.Len())
	for i, e := range s.peers.all.endpoints {
		saved[i] = e.latency.at
		if age := q.Now - e.latency.at; age < latencyLife {
			scaled := math.Min(float64(age)*rankMemory/memory, float64(latencyLife-1))
			e.latency.at = q.Now - time.Duration(scaled)
		}
	}
	picked := s.Pick(q)
	for i, e := range s.peers.all.endpoints {
		e.latency.at = saved[i]
	}
	return picked
}
