package unwanted

import "time"

// Mode says which attempts may be closed.
type Mode uint8

// The modes.
const (
	Finish Mode = iota // none
	Auto               // those whose work left is likely longer than a connection costs, within a budget
	Close              // all, but for those of which the sidecar learns
)

// Attempt describes an attempt that nobody awaits any more.
type Attempt struct {
	Kind    Kind
	Since   time.Duration // since the attempt was sent
	Connect time.Duration // what a connection to the endpoint takes; 0 means unknown

	Silent bool // the endpoint has sent no response for so long that it counts as stalled
	Last   bool // no other attempt is on a connection to the endpoint

	Requests uint64 // of the service, until now
}

// Kind says why nobody awaits an attempt. How long the application works on is known for each kind: a hedge that
// the primary overtakes is at a quick endpoint, and a primary that its hedge overtakes is not.
type Kind uint8

// The kinds.
const (
	Deserted  Kind = iota // the caller has gone, or the time of the attempt is up
	Overtaken             // the response of another attempt came first
	Needless              // an overtaken hedge

	kinds = int(Needless) + 1
)

// Decision is what becomes of an attempt. Finished follows once one has ended that was not closed.
type Decision struct {
	// Close reports whether the connection closes. Then the attempt stays pending for the time Hold, and as
	// long as the endpoint is silent.
	Close bool
	Hold  time.Duration
}

// Work decides about the attempts of one service on one loop. The zero value closes none.
type Work struct {
	Mode  Mode
	Loops int // of this process that have a Work for the service; 0 means one

	tokens   float64
	requests uint64                // of the service when tokens were earned last
	earned   time.Duration         // when that was
	ends     [kinds][2]*experience // at endpoints that responded, and at silent ones; nil until the first attempt
}

// Decide decides about an attempt. A closed one takes a token.
func (w *Work) Decide(now time.Duration, a *Attempt) (d Decision) {
	if w.Mode == Finish {
		return d
	}
	x := w.experienceOf(a.Kind, a.Silent)
	left, known := x.left(now)
	if !known {
		left = a.Since
	}
	teaches := a.Last
	if !a.Silent {
		x.skipped++
		teaches = x.skipped == model.every || !known && w.Mode == Auto
	}
	if teaches || !w.pays(now, a, left) {
		x.skipped = 0
		return d
	}
	d.Close, d.Hold = true, left
	if known {
		d.Hold = x.draw(now)
	}
	return d
}

// Finished tells for how long the application worked on an attempt that was left to finish, at least. silent is as in
// Attempt.
func (w *Work) Finished(now, left time.Duration, kind Kind, silent bool) {
	if w.Mode != Finish {
		w.experienceOf(kind, silent).add(now, left)
	}
}

// pays reports whether the mode lets the attempt close, whose application would work on for the time left. It takes the
// token.
func (w *Work) pays(now time.Duration, a *Attempt, left time.Duration) bool {
	if w.Mode == Close {
		return true
	}
	w.earn(now, a.Requests)
	if left < model.least+time.Duration(model.factor)*a.Connect || w.tokens < 1 {
		return false
	}
	w.tokens--
	return true
}

// earn adds the tokens of the requests and of the time since the last call.
func (w *Work) earn(now time.Duration, requests uint64) {
	byTime := model.perSecond * (now - w.earned).Seconds() / float64(max(1, w.Loops))
	byRequests := model.share * float64(requests-w.requests)
	w.tokens = min(w.tokens+min(byTime, byRequests), model.burst)
	w.requests, w.earned = requests, now
}

func (w *Work) experienceOf(kind Kind, silent bool) *experience {
	x := &w.ends[kind][0]
	if silent {
		x = &w.ends[kind][1]
	}
	if *x == nil {
		*x = &experience{ends: make([]end, 0, model.kept)}
	}
	return *x
}

// experience is how long the application worked on after attempts that nobody awaited: the latest ones.
type experience struct {
	ends    []end
	next    int // index of the oldest, once there are model.kept
	drawn   int // index of the last one that draw has returned
	skipped int // attempts since the last one that was left to finish
}

type end struct{ at, left time.Duration }

func (x *experience) add(now, left time.Duration) {
	if len(x.ends) < model.kept {
		x.ends = append(x.ends, end{now, left})
		return
	}
	x.ends[x.next] = end{now, left}
	x.next = (x.next + 1) % model.kept
}

func (e *end) fresh(now time.Duration) bool {
	return now-e.at <= model.fresh+time.Duration(model.fade)*e.left
}

// left returns the mean of the fresh ones. known reports whether they are enough.
func (x *experience) left(now time.Duration) (mean time.Duration, known bool) {
	n, sum := 0, time.Duration(0)
	for i := range x.ends {
		if e := &x.ends[i]; e.fresh(now) {
			n++
			sum += e.left
		}
	}
	if n < model.enough {
		return 0, false
	}
	return sum / time.Duration(n), true
}

// draw returns one of the fresh ones, of which there is one: each in its turn, so that all together are as many short
// and long ones as there were.
func (x *experience) draw(now time.Duration) time.Duration {
	for {
		x.drawn = (x.drawn + 1) % len(x.ends)
		if e := &x.ends[x.drawn]; e.fresh(now) {
			return e.left
		}
	}
}
