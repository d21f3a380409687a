package exchange

import (
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/service"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// Exchange takes one request through its phases, to its one response. The message has the request and its memory, the
// admission where the request goes, the walk its way through filters, and the race its attempts. phases.go has the
// phases: see the package comment. end.go says when an exchange is recycled.
type Exchange struct {
	pool     *Pool
	caller   Caller
	state    exchangeState
	race     race.Race
	deadline loop.Timer
	message
	passing
}

// passing is what an exchange has of one request, beside the message. The next request begins with the zero value.
type passing struct {
	StreamID  uint64 // for the session: the stream id of a link, or the id of a Dubbo call
	CallIndex int    // for the session: where it keeps the exchange

	admission
	walk   walk
	copied bool // a copy of another request: see Copies
	began  time.Duration

	Injected stats.Injected // faults of the route
	Fallback Fallback
	Cached   stats.Cached // what the route's cache did
}

// admission is what an exchange was admitted to.
type admission struct {
	Route   *Route
	service *service.Service
	passage service.Passage
	refused *fault.Failure // why the service refused the request when its head arrived; nil if it did not
	session clientSession
}

// Open reports whether the caller still waits.
func (ex *Exchange) Open() bool { return ex.state == exchangeOpen }

// HeadChecked reports whether Checks.Head was called.
func (m *message) HeadChecked() bool { return m.headChecked }

var _ service.Claimant = (*Exchange)(nil)

// Concurrency implements service.Claimant.
func (ex *Exchange) Concurrency(most int) int { return ex.caller.Concurrency(ex, most) }

// owner is an Exchange as the Owner of its race.
type owner struct{ *Exchange }

// Won implements Owner.
func (o owner) Won(by *race.Attempt, res *race.Response) { o.answerWith(by, res) }

// Lost implements Owner.
func (o owner) Lost(f *fault.Failure) { o.fail(f) }

// Lingered implements Owner.
func (o owner) Lingered(how race.Ended) { o.onAttemptOver(how) }

// Interim implements Owner.
func (o owner) Interim(res *protocol.Response) {
	if to, ok := o.caller.(InterimCaller); ok {
		to.Interim(o.Exchange, res)
	}
}

// Started implements Owner.
func (o owner) Started() { o.caller.(StartCaller).Started(o.Exchange) }

// AwaitStart reports whether the request waits for the application. If so, Started of the caller, a StartCaller, may
// follow.
func (ex *Exchange) AwaitStart() bool { return ex.Open() && ex.race.AwaitStart() }

// Untie is called when the request, a tied hedge, must not wait for the application any longer. If it waits, it fails
// with fault.NoSlot.
func (ex *Exchange) Untie() {
	ex.Request.Tied = false // the race may not have begun
	if ex.Open() {
		ex.race.Untie()
	}
}

// MaybeProcessed reports whether an application may have seen the request.
func (ex *Exchange) MaybeProcessed() bool { return ex.race.MaybeProcessed }
