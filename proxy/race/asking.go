package race

import (
	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/proxy/service"
)

// asking picks the endpoints of the attempts of a race: by what endpoints answer that were asked for their load, or by
// the policy. service.Probes asks, and says when to. One attempt of a race waits for answers at a time.
type asking struct {
	race    *Race
	wait    service.ProbeWait
	attempt *Attempt // that waits; nil for none
}

func (k *asking) init(r *Race) {
	k.race = r
	k.wait.Init(k)
}

// pick returns the endpoint of a, or nil if there is none. waits reports whether a is sent later, when more answers have come. A stream does
// not wait, the endpoint of a pinned request is known, and after a wait without answers the policy picks.
func (k *asking) pick(a *Attempt) (ep *lb.Endpoint, waits bool) {
	r := k.race
	if r.Service.Probes.On && a.kind != streamAttempt && r.Pin == nil && k.attempt == nil && a.state != attemptAsking {
		q := r.Service.Query(r.Key, k.others(a))
		switch ep, waits = r.Service.Probes.Pick(&k.wait, &q); {
		case waits:
			a.state.become(attemptAsking)
			k.attempt = a
			return nil, true
		case ep != nil:
			return ep, false
		}
	}
	q := r.Service.Query(r.Key, k.others(a))
	q.Pin = r.Pin
	return r.Service.Pick(q, r.avoid[:]), false
}

// others returns the endpoints of the attempts beside a. nil stands for an attempt without an endpoint: a retry that
// waits for answers may get its endpoint after a hedge has left.
func (k *asking) others(a *Attempt) []*lb.Endpoint {
	r := k.race
	if last := r.Launched - 1; int(a.index) == last {
		return r.tried[:last]
	}
	return r.tried[:r.Launched]
}

var _ service.Asker = (*asking)(nil)

// Answered implements service.Asker.
func (k *asking) Answered() {
	r, a := k.race, k.attempt
	k.attempt = nil
	q := r.Service.Query(r.Key, k.others(a))
	a.send(r.Service.Probes.Best(&q))
}

// withdraw ends the wait, if a waits.
func (k *asking) withdraw(a *Attempt) {
	if k.attempt == a {
		k.wait.Withdraw()
		k.attempt = nil
	}
}
