package exchange

import (
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/race"
)

// walk takes a request through the filters of its route, and the outcome back. On the way in, the first filter sees the
// request first. On the way out, the last filter sees the response or failure first.
//
//	way out begins with   filters that see the outcome
//	a response            those that have seen the request
//	Answer or Refuse      of these, those before the filter that calls
//	a failure             all, also without Request: fallbacks answer for a service that admits nothing
//	memory is short       none
type walk struct {
	inside  uint8 // filters that wait for their End: the first ones
	turned  bool  // the way out has begun
	outside uint8 // filters that the outcome has not reached: the first ones
}

// enter passes the request to the filters that have not seen it, and reports whether it is through.
func (w *walk) enter(ex *Exchange) (through bool) {
	for all := ex.Route.filters; int(w.inside) < len(all); {
		f := all[w.inside]
		w.inside++
		if f.Request(ex) != Continue {
			return false // ex may be over
		}
	}
	return true
}

// turn begins the way out, through the first n filters, unless it has begun. It cancels the attempts.
func (w *walk) turn(ex *Exchange, n uint8) {
	if w.turned {
		return
	}
	w.turned, w.outside = true, n
	ex.race.Stop()
	ex.race.Cancel(true)
}

// skip begins the way out, or goes on with it, past all filters.
func (w *walk) skip(ex *Exchange) {
	w.turn(ex, 0)
	w.outside = 0
}

// response returns what the filters make of res, or nil if one of them has it.
func (w *walk) response(ex *Exchange, res *race.Response) *race.Response {
	w.turn(ex, w.inside)
	ex.judge(fault.VerdictOf(res.Outcome()))
	for w.outside > 0 && res != nil {
		w.outside--
		if f := ex.Route.outcomes[w.outside]; f != nil {
			res.Own()
			res = f.Response(ex, res)
		}
	}
	return res
}

// failure reports whether a filter answers, or will answer, in place of f.
func (w *walk) failure(ex *Exchange, f *fault.Failure) bool {
	if !w.turned {
		w.inside = uint8(len(ex.Route.filters))
		w.turn(ex, w.inside)
	}
	ex.judge(ex.verdictOf(f))
	for w.outside > 0 {
		w.outside--
		if o := ex.Route.outcomes[w.outside]; o != nil && o.Failure(ex, f) != Continue {
			return true
		}
	}
	return false
}

// end ends the filters that wait for it.
func (w *walk) end(ex *Exchange) {
	if w.inside == 0 {
		return
	}
	waiting := ex.Route.filters[:w.inside]
	w.inside = 0
	for _, f := range waiting {
		f.End(ex)
	}
}

// verdictOf returns the verdict of a failure. If a filter held the request, and it was not sent, the failure says
// nothing about the service.
func (ex *Exchange) verdictOf(f *fault.Failure) fault.Verdict {
	if ex.race.Launched == 0 {
		return fault.VerdictNone
	}
	return f.Verdict()
}
