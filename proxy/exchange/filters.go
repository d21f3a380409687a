package exchange

import (
	"time"

	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/identity"
	"github.com/remora-proxy/remora/proxy/race"
)

// HedgeDelay is when a request of the route is late, as far as is known now.
func (ex *Exchange) HedgeDelay() time.Duration { return ex.Route.Hedging.Delay(ex.shard.Loop.Now()) }

// PeerNames are the names that the caller has proved; nil means none.
func (ex *Exchange) PeerNames() *identity.Names { return ex.caller.PeerNames() }

// Refuse gives the caller f. A filter calls it, and must not touch ex afterwards.
func (ex *Exchange) Refuse(f *fault.Failure) {
	ex.decide(int(ex.outcome.filtered) - 1)
	ex.fail(f)
}

// Answer gives the caller res, which it owns. A filter calls it, and must not touch ex afterwards.
// The breaker learns nothing of it.
func (ex *Exchange) Answer(res *race.Response) {
	if ex.service == nil { // EarlyFilter
		ex.Route.Service.Arrived(ex.began, ex.size())
	}
	ex.decide(max(0, int(ex.outcome.filtered)-1))
	ex.judge(fault.VerdictNone)
	if res.Source == nil && !res.GRPC { // it may be the filter's own
		res.ReadGRPC(&ex.Request)
	}
	ex.answerWith(nil, res)
}

// decide begins the outcome, which n filters see: the first ones. Attempts are cancelled.
func (ex *Exchange) decide(n int) {
	if ex.outcome.decided {
		return
	}
	ex.outcome.decided, ex.outcome.outer = true, uint8(n)
	ex.race.Stop()
	ex.race.Cancel(true)
}

// passResponse returns what the filters of the route make of res, or nil if one of them has it.
func (ex *Exchange) passResponse(res *race.Response) *race.Response {
	ex.decide(int(ex.outcome.filtered))
	ex.judge(fault.VerdictOf(res.Outcome()))
	for ex.outcome.outer > 0 && res != nil {
		ex.outcome.outer--
		if f := ex.Route.outcomes[ex.outcome.outer]; f != nil {
			res.Own()
			res = f.Response(ex, res)
		}
	}
	return res
}

// passFailure reports whether a filter of the route answers, or will answer, in place of f.
func (ex *Exchange) passFailure(f *fault.Failure) bool {
	if !ex.outcome.decided {
		ex.outcome.filtered = uint8(len(ex.Route.filters))
		ex.decide(len(ex.Route.filters))
	}
	ex.judge(ex.verdictOf(f))
	for ex.outcome.outer > 0 {
		ex.outcome.outer--
		if o := ex.Route.outcomes[ex.outcome.outer]; o != nil && o.Failure(ex, f) != Continue {
			return true
		}
	}
	return false
}

// verdictOf returns the verdict of a failure. If a filter held the request, and it was not sent, the failure says
// nothing about the service.
func (ex *Exchange) verdictOf(f *fault.Failure) fault.Verdict {
	if ex.race.Launched == 0 {
		return fault.VerdictNone
	}
	return f.Verdict()
}

// endFilters ends the filters that have seen the request.
func (ex *Exchange) endFilters() {
	if ex.outcome.filtered == 0 {
		return
	}
	seen := ex.Route.filters[:ex.outcome.filtered]
	ex.outcome.filtered = 0
	for _, f := range seen {
		f.End(ex)
	}
}
