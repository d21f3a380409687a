package race

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/hedge"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
	"github.com/remora-proxy/remora/proxy/telemetry/trace"
)

// TestNumber: the number of an attempt at the next hop includes the attempts of the caller, and leaves room for those of
// older sidecars.
func TestNumber(t *testing.T) {
	for _, c := range []struct{ caller, index, want uint8 }{
		{0, 0, 0}, {0, 2, 2}, {3, 2, 5}, {249, 0, 249}, {247, 2, 249}, {249, 1, 249}, {255, 5, 249},
	} {
		a := &Attempt{race: &Race{Entry: Entry{CallerAttempt: c.caller}}, index: c.index}
		if got := a.Outgoing().number(); got != c.want {
			t.Errorf("attempt %d of attempt %d of the caller has the number %d, want %d", c.index, c.caller, got, c.want)
		}
	}
}

// TestRepeatable: a request is sent again after its connection was lost if it is idempotent, and the route retries that.
func TestRepeatable(t *testing.T) {
	for _, c := range []struct {
		idempotent bool
		on         retryOn
		want       bool
	}{
		{true, retryOn{connect: true}, true}, {true, retryOn{reset: true}, true}, {true, retryOn{refused: true, any5xx: true}, false},
		{false, retryOn{connect: true, reset: true}, false},
	} {
		r := &Race{request: &protocol.Request{Idempotent: c.idempotent}, Entry: Entry{Policy: &Policy{retryOn: c.on}}}
		if got := (&Attempt{race: r}).Outgoing().Repeatable(); got != c.want {
			t.Errorf("%+v: %t", c, got)
		}
	}
}

// TestNewPolicy: how the settings of a route make requests race.
func TestNewPolicy(t *testing.T) {
	for mode, want := range map[string]hedge.Mode{config.HedgeOn: hedge.On, config.HedgeShadow: hedge.Shadow, config.HedgeOff: hedge.Off} {
		for class, header := range map[string]string{config.ClassSize: "", config.ClassNone: "", "X-Tier": "x-tier"} {
			p := NewPolicy(&config.Policy{
				Timeout: time.Second, Retry: config.Retry{Attempts: 2, PerTryTimeout: time.Millisecond},
				Hedge: config.Hedge{Mode: mode, Delay: "p90", Class: class, MinDelay: 1, MaxDelay: 2, Budget: 0.5, Max: 3, Sample: 0.25},
			}, 1)
			h := p.HedgeRoute.Policy
			wanted := hedge.Policy{
				Mode: want, Quantile: 0.9, MinDelay: 1, MaxDelay: 2, Budget: 0.5, Max: 3, Sample: 0.25, OneClass: class == config.ClassNone,
			}
			if h != wanted || p.classHeader != header {
				t.Errorf("%s, class %s: %+v with the class in %q", mode, class, h, p.classHeader)
			}
			if p.Timeout != time.Second || p.tryTimeout != time.Millisecond || p.maxPaid != 2 || p.maxAttempts != MaxAttempts || p.retryKind != retryAttempt {
				t.Errorf("%s, class %s: %+v", mode, class, p)
			}
		}
	}
}

// TestQueueByID: attempts that come back to a queue wait in the order of their ids.
func TestQueueByID(t *testing.T) {
	var q Queue
	var all [6]Attempt
	for _, id := range []int{3, 1, 5, 2, 4} {
		all[id].Carry(nil, uint64(id))
		q.InsertByID(&all[id], 0)
	}
	q.Remove(&all[4])
	for _, id := range []uint64{1, 2, 3, 5} {
		if a := q.Pop(); a == nil || a.ID() != id {
			t.Fatalf("got %+v, want the attempt %d", a, id)
		}
	}
	if !q.Empty() {
		t.Error("an attempt that was removed waits")
	}
}

// TestTraceStateMemory: the memory of a long tracestate is not kept for the next request.
func TestTraceStateMemory(t *testing.T) {
	for room, keeps := range map[int]bool{maxTraceState: true, maxTraceState + 1: false} {
		m := marks{timeLeft: []byte("999"), previous: 1, marked: true}
		m.traceState.Text = make([]byte, 1, room)
		m.reset()
		if (m.traceState.Text != nil) != keeps || len(m.timeLeft) != 0 || m.previous != 0 || m.marked {
			t.Errorf("of %d bytes: %d are kept, and %+v", room, cap(m.traceState.Text), m)
		}
	}
}

// TestStreamHead: a body that is a stream has the length that was declared, or is chunked.
func TestStreamHead(t *testing.T) {
	for length, want := range map[int64]http1.Head{
		-1: {Framing: http1.Chunked}, 0: {Framing: http1.FixedLength}, 7: {Framing: http1.FixedLength, Length: 7},
	} {
		res := Response{Response: protocol.Response{DeclaredLength: length}}
		if got := res.StreamHead(); got.Framing != want.Framing || got.Length != want.Length {
			t.Errorf("length %d: %+v", length, got)
		}
	}
}

// TestReadGRPC: what a response says of a gRPC call, and as which status it counts.
func TestReadGRPC(t *testing.T) {
	fields := func(name, value string) []protocol.Header {
		return []protocol.Header{{Name: []byte(name), Value: []byte(value)}}
	}
	call, other := fields("content-type", "application/grpc"), fields("content-type", "text/plain")
	for _, c := range []struct {
		name    string
		request []protocol.Header
		res     protocol.Response
		grpc    bool
		code    protocol.GRPCCode
		outcome int
	}{
		{"a code", call, protocol.Response{Status: 200, Trailers: fields("grpc-status", "14")}, true, protocol.GRPCUnavailable, 503},
		{"success", call, protocol.Response{Status: 200, Trailers: fields("grpc-status", "0")}, true, protocol.GRPCOK, 200},
		{"no code", other, protocol.Response{Status: 200}, false, protocol.GRPCOK, 200},
		{"no code of a call", call, protocol.Response{Status: 200}, false, protocol.GRPCOK, 200},
		{"of a proxy on the way", call, protocol.Response{Status: 502}, true, protocol.GRPCUnavailable, 502},
		{"of a proxy, with a code", call, protocol.Response{Status: 502, Trailers: fields("grpc-status", "13")}, true, protocol.GRPCInternal, 502},
		{"of another request", other, protocol.Response{Status: 502}, false, protocol.GRPCOK, 502},
	} {
		res := Response{Response: c.res}
		awaits := res.ReadGRPC(&protocol.Request{Headers: c.request})
		if awaits || res.GRPC != c.grpc || res.GRPC && res.Code != c.code || res.Outcome() != c.outcome || res.Failed() != (c.outcome >= 500) {
			t.Errorf("%s: a call %t with the code %s, counts as %d", c.name, res.GRPC, res.Code, res.Outcome())
		}
	}
	for status, want := range map[int]bool{499: false, 500: true} {
		if res := (Response{Response: protocol.Response{Status: status}}); res.Failed() != want {
			t.Errorf("%d says that the application has failed: %t", status, !want)
		}
	}
}

// TestOutcomeOfStatus: what the status of a stream says of its service and of its endpoint.
func TestOutcomeOfStatus(t *testing.T) {
	for status, want := range map[int]outcome{
		200: {fault.VerdictOf(200), stats.AttemptServed, false},
		399: {fault.VerdictOf(399), stats.AttemptServed, false},
		400: {fault.VerdictOf(400), stats.AttemptServed, true},
		499: {fault.VerdictOf(499), stats.AttemptServed, true},
		500: {fault.VerdictBad, stats.AttemptFailure, true},
	} {
		if got := outcomeOfStatus(status); got != want {
			t.Errorf("%d: %+v, want %+v", status, got, want)
		}
	}
}

// TestMayHaveBeenSeen: an application may have seen what failed at an endpoint, unless the failure says that the request was
// not sent, or that the other sidecar has sent it to nobody.
func TestMayHaveBeenSeen(t *testing.T) {
	for _, c := range []struct {
		failure *fault.Failure
		picked  bool // an endpoint
		want    bool
	}{
		{fault.Reset, true, true}, {fault.Deadline, true, true}, {fault.Deadline, false, false}, {fault.Malformed, true, true}, {fault.Connect, true, false},
		{fault.NoSlot, true, false}, {fault.NoRoute, true, false}, {fault.RequestTooLarge, true, false}, {fault.NoEndpoint, false, false},
	} {
		a := &Attempt{race: &Race{Entry: Entry{Policy: &Policy{}}}}
		if c.picked {
			a.visit.ep = new(lb.Endpoint)
		}
		if got := a.mayHaveBeenSeen(c.failure); got != c.want {
			t.Errorf("%s, an endpoint %t: %t", c.failure.Code, c.picked, got)
		}
	}
}

// TestSpanOutcome: an attempt that the endpoint did not take was refused, as a trace has it. Others have failed.
func TestSpanOutcome(t *testing.T) {
	for f, want := range map[*fault.Failure]trace.Outcome{
		fault.Overloaded: trace.Refused, fault.PoolExhausted: trace.Refused, fault.StreamLimit: trace.Refused, fault.NoSlot: trace.Refused,
		fault.QueueFull: trace.Refused, fault.Draining: trace.Refused, fault.GoAway: trace.Refused,
		fault.Connect: trace.Failed, fault.Reset: trace.Failed, fault.Deadline: trace.Failed, fault.NoEndpoint: trace.Failed, fault.NotAllowed: trace.Failed,
	} {
		if got := spanOutcome(f); got != want {
			t.Errorf("%s: %s, want %s", f.Code, got, want)
		}
	}
}

// TestBadness: of bad responses the response with the lowest status is the best. The worst says that another attempt has
// the key.
func TestBadness(t *testing.T) {
	of := func(status int) *Response { return &Response{Response: protocol.Response{Status: status}} }
	keyed := &Race{Entry: Entry{Keyed: true}, Launched: 2}
	for _, r := range []*Race{{}, keyed} {
		if r.badness(of(500)) >= r.badness(of(503)) {
			t.Error("503 is better than 500")
		}
	}
	if keyed.badness(of(409)) <= keyed.badness(of(599)) {
		t.Error("a key in use is better than a failure")
	}
	for r, want := range map[*Race]bool{
		keyed: true, {Launched: 2}: false, {Entry: Entry{Keyed: true}, Launched: 1}: false,
	} {
		if r.keyInUse(of(409)) != want || r.keyInUse(of(408)) || r.keyInUse(of(410)) {
			t.Errorf("keyed %t, %d attempts: a key in use is %t", r.Keyed, r.Launched, !want)
		}
	}
}
