package lb

import (
	"time"

	"github.com/remora-proxy/remora/lb/log2"
	"github.com/remora-proxy/remora/lb/spare"
)

// Spare reports whether the endpoint can serve one more request at once, as far as is known. An
// idle one can.
func (e *Endpoint) Spare(now time.Duration) bool { return e.room(now, false) }

// room reports whether the endpoint can serve one more request at once, or soon if the request is stuck;
// see spare.Curve. No request may wait for a slot in the endpoint's sidecar.
func (e *Endpoint) room(now time.Duration, stuck bool) bool {
	load := e.load(now)
	if e.set == nil || load < 1 {
		return true
	}
	return e.queueing(load) == 0 && e.set.curve.Room(now, load, e.usualLoad.Load(), stuck)
}

// Learn takes the latency of an attempt for which Started has returned found.
func (e *Endpoint) Learn(now, latency time.Duration, found spare.Level) {
	if e.set == nil {
		return
	}
	log := log2.Of(latency)
	e.set.curve.Learn(now, log, found)
	e.observePace(now, log)
}
