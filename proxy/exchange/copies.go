package exchange

import (
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/identity"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/route"
	"github.com/remora-proxy/remora/proxy/service"
)

// Copies is the Caller of the requests that filters of one loop send, as a session is the Caller of the requests of
// its connection. A copy has no client: it begins no session and has no access line and no span. Its
// failures count for its service alone, since they are no responses of this sidecar.
type Copies struct {
	pool     *Pool
	listener Listener
	open     []copied // in flight, by CallIndex
}

// copied is a copy in flight.
type copied struct {
	*Exchange
	to          Receiver
	concurrency int
}

// Receiver is a filter that sends copies. Exactly one of Respond and Fail is called for each, once, unless
// the filter called Copies.Cancel before.
type Receiver interface {
	// Respond owns res.
	Respond(c *Exchange, res *race.Response)
	Fail(c *Exchange, f *fault.Failure)
}

// NewCopyRoute returns a route to s for copies: without retries, hedges and filters.
func NewCopyRoute(s *service.Service) *Route {
	policy := s.Config.Policy
	policy.Retry, policy.Hedge = config.Retry{}, config.Hedge{Mode: config.HedgeOff, Class: config.ClassNone}
	r := NewRoute(&route.Plan{Index: -1, Match: &config.Match{}, Route: &config.Route{}, Policy: &policy}, s)
	r.once = true
	return r
}

// New returns an exchange with a copy of the request of ex. Send must follow.
func (c *Copies) New(ex *Exchange) *Exchange {
	made, size := c.pool.Exchange(c), ex.Request.Size()
	made.HeadBuffer = c.pool.shard.Buffers.GetRoom(size)
	ex.Request.CopyTo(&made.Request, made.HeadBuffer)
	made.Charge()
	return made
}

// Send begins a copy, for to. concurrency is that of the client's connection if that waits for the copy, and 0
// if nobody does: see Caller. The copy may be over before Send returns.
func (c *Copies) Send(ex *Exchange, r *Route, to Receiver, concurrency int) {
	ex.CallIndex = len(c.open)
	c.open = append(c.open, copied{ex, to, concurrency})
	ex.Begin(r, &c.listener)
}

// Cancel withdraws a copy in flight.
func (c *Copies) Cancel(ex *Exchange) {
	c.remove(ex)
	ex.Cancel()
}

// Shed abandons a copy because memory is short, and reports whether there was one.
func (c *Copies) Shed() bool {
	n := len(c.open)
	if n > 0 {
		c.open[n-1].Shed()
	}
	return n > 0
}

// remove removes a copy that has ended, and returns its receiver. The last one in flight gets its place.
func (c *Copies) remove(ex *Exchange) Receiver {
	to, last := c.open[ex.CallIndex].to, len(c.open)-1
	c.open[ex.CallIndex] = c.open[last]
	c.open[ex.CallIndex].CallIndex = ex.CallIndex
	c.open[last] = copied{}
	c.open = c.open[:last]
	return to
}

// Encode implements Caller. Any response will do.
func (c *Copies) Encode(*Exchange, *race.Response) *fault.Failure { return nil }

// Respond implements Caller.
func (c *Copies) Respond(ex *Exchange, res *race.Response) { c.remove(ex).Respond(ex, res) }

// Fail implements Caller.
func (c *Copies) Fail(ex *Exchange, f *fault.Failure) { c.remove(ex).Fail(ex, f) }

// OverShare implements Caller. Copies go first when memory is short.
func (c *Copies) OverShare(*Exchange) bool { return true }

// Concurrency implements Caller.
func (c *Copies) Concurrency(ex *Exchange, _ int) int { return c.open[ex.CallIndex].concurrency }

// Listener implements Caller.
func (c *Copies) Listener() *Listener { return &c.listener }

// RemoteAddr implements Caller.
func (c *Copies) RemoteAddr() string { return "" }

// PeerNames implements Caller.
func (c *Copies) PeerNames() *identity.Names { return nil }

// Finished implements Caller. Nothing waits for a copy that was cancelled.
func (c *Copies) Finished(*Exchange, race.Ended) {}
