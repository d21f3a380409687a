package race

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/hedge"
)

// Policy is how the requests of a route race.
type Policy struct {
	Timeout     time.Duration // of a request
	maxAttempts int           // of one request, with free retries and hedges
	retryKind   attemptKind   // of its retries
	maxPaid     int           // retries of one request that cost a token
	retryOn     retryOn
	tryTimeout  time.Duration // of each attempt; 0 means none
	classHeader string        // the header that names the class of a request, in lower case; "" means none

	// What the loop learns of the route. The policy itself does not change.
	HedgeRoute *hedge.Route
	silence    *lb.SilentCount // of the service's endpoints
}

// retryOn is the parsed retry.on list.
type retryOn struct {
	connect, refused, reset, any5xx bool
	statuses                        []int
	codes                           uint32 // of gRPC: bit n stands for the code n
}

// NewPolicy returns the policy of a route on one of so many loops.
func NewPolicy(p *config.Policy, loops int) Policy {
	made := Policy{
		Timeout: p.Timeout, maxAttempts: MaxAttempts, retryKind: retryAttempt, maxPaid: p.Retry.Attempts, tryTimeout: p.Retry.PerTryTimeout,
		retryOn: newRetryOn(p.Retry.On), HedgeRoute: hedge.NewRoute(hedgePolicy(&p.Hedge), loops), silence: new(lb.SilentCount),
	}
	if class := p.Hedge.Class; class != config.ClassSize && class != config.ClassNone {
		made.classHeader = strings.ToLower(class)
	}
	return made
}

// streamPolicy is how streams race. An endpoint that does not take a stream has done nothing for it, whatever
// its reason. So another endpoint may get the stream free of charge, unless the first endpoint was lost.
var streamPolicy = &Policy{
	maxAttempts: maxFreeEndpoints, retryKind: streamAttempt, maxPaid: maxFreeEndpoints, retryOn: retryOn{connect: true, reset: true},
}

// classOf returns which retry f permits.
func (p *Policy) classOf(f *fault.Failure) fault.RetryClass {
	if p != streamPolicy {
		return f.Retry
	}
	switch {
	case f == fault.NoEndpoint, f == fault.Reset: // there is no other endpoint, or this one was lost
		return f.Retry
	case f.Retry == fault.RetryFree && f != fault.Connect: // the same endpoint may take the stream
		return f.Retry
	}
	return fault.RetryFreeElsewhere
}

// Repeats is how often a request may be sent again that an endpoint may have seen.
func (p *Policy) Repeats() int {
	if !p.retryOn.reset {
		return 0
	}
	return p.maxPaid
}

func newRetryOn(names []string) retryOn {
	on := retryOn{
		connect: slices.Contains(names, config.RetryConnect), refused: slices.Contains(names, config.RetryRefused),
		reset: slices.Contains(names, config.RetryReset), any5xx: slices.Contains(names, config.Retry5xx),
	}
	for _, name := range names {
		if code, err := strconv.Atoi(name); err == nil {
			on.statuses = append(on.statuses, code)
		}
		if code, ok := protocol.GRPCCodeNamed(name); ok {
			on.codes |= 1 << code
		}
	}
	if on.hasCode(protocol.GRPCUnknown) {
		on.codes |= 1 << protocol.GRPCOther
	}
	return on
}

func hedgePolicy(h *config.Hedge) hedge.Policy {
	delay, quantile, _ := h.ParseDelay()
	p := hedge.Policy{
		Delay: delay, Quantile: quantile, MinDelay: h.MinDelay, MaxDelay: h.MaxDelay,
		Budget: h.Budget, Max: h.Max, OneClass: h.Class == config.ClassNone, Sample: h.Sample,
	}
	switch h.Mode {
	case config.HedgeOn:
		p.Mode = hedge.On
	case config.HedgeShadow:
		p.Mode = hedge.Shadow
	}
	return p
}

// hasCode reports whether the list names a gRPC code.
func (on *retryOn) hasCode(c protocol.GRPCCode) bool { return on.codes>>c&1 != 0 }

// hasResponse reports whether the list names the HTTP status of res, or its gRPC code.
func (on *retryOn) hasResponse(res *Response) bool {
	return on.any5xx && res.Status >= 500 || slices.Contains(on.statuses, res.Status) || res.GRPC && on.hasCode(res.Code)
}
