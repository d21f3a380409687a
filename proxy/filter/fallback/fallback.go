// Package fallback is the filter that answers in place of failures: with a response of its own, or
// with that of another service.
package fallback

import (
	"slices"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/route"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// filter answers for one route on one loop. Copies go to the other service, and are bounded by the
// max_pending of that service.
type filter struct {
	shard  *shard.Shard
	pool   *exchange.Pool
	policy *config.Fallback
	counts *stats.FilterStats

	answer  *route.Answer // nil means that a service answers
	headers route.HeaderEdits

	to    *exchange.Route
	asked map[*exchange.Exchange]*question // by the request, and by its copy
	free  shard.FreeList[*question]
}

// question is a request of which another service has a copy.
type question struct {
	request, copy *exchange.Exchange
	reason        reason
	failure       *fault.Failure // of the request; nil means that response is bad
	response      *race.Response // of the request
}

var (
	_ exchange.OutcomeFilter = (*filter)(nil)
	_ exchange.Receiver      = (*filter)(nil)
)

// New returns the filter of a route, or nil if that has no fallback.
func New(at *exchange.FilterPlace) exchange.Filter {
	c := &at.Route.Fallback
	if !c.Enabled() {
		return nil
	}
	f := &filter{shard: at.Shard, pool: at.Pool, policy: c, counts: &at.Service.Stats.FilterStats}
	f.counts.FallsBack = true
	if c.Service == "" {
		f.answer, f.headers = route.NewResponse(&c.Respond)
		return f
	}
	f.to = exchange.NewCopyRoute(at.Services[c.Service])
	f.asked = map[*exchange.Exchange]*question{}
	return f
}

// reason is an index of config.FallbackReasons.
type reason int

var _ [stats.FallbackReasons]string = config.FallbackReasons

// reasonOf returns what f counts as. ok is false if no fallback is for it, such as a limit that the
// caller has exceeded.
func reasonOf(f *fault.Failure) (r reason, ok bool) {
	name := ""
	switch {
	case f == fault.BreakerOpen:
		name = config.FallbackBreaker
	case f == fault.Deadline, f == fault.TryTimeout:
		name = config.FallbackDeadline
	case f == fault.Overloaded, f == fault.QueueFull, f == fault.StreamLimit, f == fault.DialLimit, f == fault.PoolExhausted:
		name = config.FallbackOverload
	case f == fault.NoEndpoint, f.Free():
		name = config.FallbackNoEndpoint
	case f == fault.Reset, f == fault.Malformed:
		name = config.FallbackReset
	case f.Code == fault.Injected.Code && f.Status >= 500:
		name = config.Fallback5xx
	default:
		return 0, false
	}
	return reason(slices.Index(config.FallbackReasons[:], name)), true
}

var badResponse = reason(slices.Index(config.FallbackReasons[:], config.Fallback5xx))

// marks are the values of the header that says why a fallback answers, by reason.
var marks [stats.FallbackReasons][]byte

func init() {
	for i, name := range config.FallbackReasons {
		marks[i] = []byte(name)
	}
}

func (r reason) String() string { return config.FallbackReasons[r] }

// Request implements exchange.Filter.
func (f *filter) Request(*exchange.Exchange) exchange.Next { return exchange.Continue }

// Failure implements exchange.OutcomeFilter.
func (f *filter) Failure(ex *exchange.Exchange, why *fault.Failure) exchange.Next {
	r, ok := reasonOf(why)
	if ok && f.answers(ex, question{reason: r, failure: why}) {
		return exchange.Decided
	}
	return exchange.Continue
}

// Response implements exchange.OutcomeFilter.
func (f *filter) Response(ex *exchange.Exchange, res *race.Response) *race.Response {
	if res.Failed() && f.answers(ex, question{reason: badResponse, response: res}) {
		return nil
	}
	return res
}

// answers reports whether the filter has answered ex, or will. Then it owns the response of q.
func (f *filter) answers(ex *exchange.Exchange, q question) bool {
	if !slices.Contains(f.policy.On, q.reason.String()) {
		return false
	}
	if f.answer == nil {
		return f.ask(ex, q)
	}
	if ex.Request.Codec != protocol.CodecHTTP {
		return false
	}
	if q.response != nil {
		q.response.Release()
	}
	res := f.pool.Answer(f.answer, &ex.Request)
	res.Headers, res.HeadBuffer.B = f.headers.Apply(res.Headers, &route.Values{}, res.HeadBuffer.B)
	res.Charge()
	f.give(ex, &q, res)
	return true
}

// give answers ex, whose failure is that of q.
func (f *filter) give(ex *exchange.Exchange, q *question, res *race.Response) {
	f.counts.FallbackAnswered[q.reason]++
	ex.Fallback.Reason = q.reason.String()
	if q.failure != nil {
		ex.Fallback.Code = q.failure.Code
	}
	if res.RPC == 0 {
		res.Headers = append(res.Headers, protocol.Header{Name: protocol.NameFallback, Value: marks[q.reason]})
	}
	ex.Answer(res)
}

// ask sends a copy to the other service. It reports whether it may: a request that an application may
// have seen is not sent to another one unless it may be sent twice.
func (f *filter) ask(ex *exchange.Exchange, q question) bool {
	if !ex.Request.Idempotent && (ex.MaybeProcessed() || q.response != nil) {
		f.counts.FallbackFailed[q.reason]++
		return false
	}
	kept, ok := f.free.Take()
	if !ok {
		kept = &question{}
	}
	c, now := f.pool.Copies.New(ex), f.shard.Loop.Now()
	left := f.policy.Timeout
	if rest := ex.TimeLeft(ex.Route, now); rest > 0 { // it has not passed
		left = min(left, rest)
	}
	c.Request.Deadline = now + left
	*kept = q
	kept.request, kept.copy = ex, c
	f.asked[ex], f.asked[c] = kept, kept
	f.pool.Copies.Send(c, f.to, f, min(ex.Concurrency(several), several)) // may end both
	return true
}

// take forgets the question of a request or of its copy, and returns it. ok is false if it has ended.
func (f *filter) take(ex *exchange.Exchange) (q question, ok bool) {
	kept := f.asked[ex]
	if kept == nil {
		return q, false
	}
	q = *kept
	delete(f.asked, q.request)
	delete(f.asked, q.copy)
	*kept = question{}
	f.free.Put(kept)
	return q, true
}

// End implements exchange.Filter. The caller has gone, or got the deadline of its request.
func (f *filter) End(ex *exchange.Exchange) {
	if q, ok := f.take(ex); ok {
		if q.response != nil {
			q.response.Release()
		}
		f.counts.FallbackFailed[q.reason]++
		f.pool.Copies.Cancel(q.copy)
	}
}

// Retire implements exchange.Filter.
func (*filter) Retire() {}

// several is how far the requests of a connection are counted. A connection with several at the service of its route
// has several at the other service, too: its copies leave the last places there to single requests.
const several = 2

// Respond implements exchange.Receiver.
func (f *filter) Respond(c *exchange.Exchange, res *race.Response) {
	if res.Failed() {
		res.Release()
		f.Fail(c, nil)
		return
	}
	if q, ok := f.take(c); ok {
		if q.response != nil {
			q.response.Release()
		}
		f.give(q.request, &q, res)
	}
}

// Fail implements exchange.Receiver. The request gets what it would have got without a fallback.
func (f *filter) Fail(c *exchange.Exchange, _ *fault.Failure) {
	q, ok := f.take(c)
	if !ok {
		return
	}
	f.counts.FallbackFailed[q.reason]++
	if q.response != nil {
		q.request.Answer(q.response)
	} else {
		q.request.Refuse(q.failure)
	}
}
