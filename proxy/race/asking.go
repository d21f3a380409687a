package race

import "github.com/remora-proxy/remora/proxy/service"

// asking sends the attempts of a race by what endpoints answer that were asked for their load. service.Probes asks, and
// says when to. One attempt of a race waits for answers at a time.
type asking struct {
	race    *Race
	wait    service.ProbeWait
	attempt *Attempt // that waits; nil for none
}

func (k *asking) init(r *Race) {
	k.race = r
	k.wait.Init(k)
}

// send sends a to the endpoint of the best answer, now or when more answers have come. It reports whether it does. A stream
// does not wait, the endpoint of a pinned request is known, and after a wait without answers the policy picks.
func (k *asking) send(a *Attempt) (taken bool) {
	r := k.race
	if a.kind == streamAttempt || r.Pin != nil || k.attempt != nil || a.state == attemptAsking {
		return false
	}
	q := r.Service.Query(r.Key, a.others())
	ep, waits := r.Service.Probes.Pick(&k.wait, &q)
	switch {
	case waits:
		a.state.become(attemptAsking)
		k.attempt = a
	case ep != nil:
		a.send(ep)
	default:
		return false
	}
	return true
}

var _ service.Asker = (*asking)(nil)

// Answered implements service.Asker.
func (k *asking) Answered() {
	r, a := k.race, k.attempt
	k.attempt = nil
	q := r.Service.Query(r.Key, a.others())
	a.send(r.Service.Probes.Best(&q))
}

// withdraw ends the wait, if a waits.
func (k *asking) withdraw(a *Attempt) {
	if k.attempt == a {
		k.wait.Withdraw()
		k.attempt = nil
	}
}
