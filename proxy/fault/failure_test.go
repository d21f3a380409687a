package fault

import (
	"errors"
	"slices"
	"testing"

	"github.com/remora-proxy/remora/protocol/dubbo"
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/protocol/link"
)

// all are the failures.
var all = []*Failure{
	NoRoute, DirectRefused, Unresolved, Loop, MaxForwards, TLSRequired, BadProxyHeader, BadClientHello, NotAllowed, ConnectionLogin, NoEndpoint,
	EndpointDown, Overloaded, QueueFull, StreamLimit, DialLimit, PoolExhausted, RateLimited, BreakerOpen, NoSlot, Draining, Connect, GoAway,
	Refused, Reset, TryTimeout, Malformed, ResponseTooLarge, Deadline, Shed, Injected, NotCached, Pipelined, TooManyStreams, BodyTooSlow,
	BadRequest, BadPath, RequestTooLarge, CallTooLarge, SlowHead, SlowBody, Underscore, HTTP2Flood, HTTP2Error, TLSNotServed, NotConvertible,
	Unsupported,
}

// TestKinds: what each failure says of the endpoint and of the service, and whether a retry is free.
func TestKinds(t *testing.T) {
	for what, c := range map[string]struct {
		is   func(f *Failure) bool
		want []*Failure
	}{
		"blames the endpoint": {(*Failure).BlamesEndpoint, []*Failure{Connect, Reset, Malformed}},
		"says that there is no room": {(*Failure).NoRoom, []*Failure{
			Overloaded, PoolExhausted, RateLimited, BreakerOpen, Draining, Refused,
		}},
		"is local": {(*Failure).Local, []*Failure{
			NoSlot, StreamLimit, DialLimit, Shed, ConnectionLogin, NotConvertible, BadRequest, ResponseTooLarge, Deadline,
		}},
		"has a free retry": {(*Failure).Free, []*Failure{
			EndpointDown, StreamLimit, DialLimit, Draining, Connect, GoAway, Refused,
		}},
		"is bad for the service": {func(f *Failure) bool { return f.Verdict() == VerdictBad }, []*Failure{
			Connect, GoAway, Reset, TryTimeout, Malformed, Deadline,
		}},
		"stays if the request was not sent": {func(f *Failure) bool { return f.AsUnsent() == f }, []*Failure{DialLimit, Connect}},
	} {
		for _, f := range all {
			if want := slices.Contains(c.want, f); c.is(f) != want {
				t.Errorf("%s %s: %t", f.Code, what, !want)
			}
		}
	}
	for _, f := range all {
		if v := f.Verdict(); v == VerdictGood {
			t.Errorf("%s is good", f.Code)
		}
		if u := f.AsUnsent(); u != f && u != Connect {
			t.Errorf("%s of a request that was not sent is %s", f.Code, u.Code)
		}
	}
	for status, want := range map[int]Verdict{499: VerdictGood, 500: VerdictBad} {
		if got := VerdictOf(status); got != want {
			t.Errorf("%d: %d, want %d", status, got, want)
		}
	}
}

// TestCopies: a failure with another status is the same otherwise, and the first one does not change.
func TestCopies(t *testing.T) {
	other := Injected.WithStatus(418)
	if other.Status != 418 || other.Code != Injected.Code || Injected.Status != 503 {
		t.Errorf("%+v of %+v", other, Injected)
	}
	if got, want := (Error{Reset}).Error(), Reset.Code+": "+Reset.Text; got != want {
		t.Errorf("the text is %q, want %q", got, want)
	}
}

// TestRefusals: what another sidecar is told, and makes of it. It is promised that the application saw nothing of the request
// only if that is so.
func TestRefusals(t *testing.T) {
	for _, f := range all {
		why := f.Refusal(false)
		if why != f.Reason() {
			t.Errorf("%s: the reason is %d, of a stream %d", f.Code, why, f.Reason())
		}
		late := f.Refusal(true)
		want := why
		switch {
		case f == Deadline:
			want = link.UpstreamTimeout
		case why < link.UpstreamReset:
			want = link.UpstreamReset
		}
		if late != want || late < link.UpstreamReset {
			t.Errorf("%s of a request that may have been processed: the reason is %d, want %d", f.Code, late, want)
		}
	}
	for f, want := range map[*Failure]*Failure{
		Overloaded: Overloaded, QueueFull: Overloaded, Shed: Overloaded, RateLimited: RateLimited, PoolExhausted: PoolExhausted, NoSlot: NoSlot,
		Draining: Draining, NoRoute: NoRoute, NotAllowed: NotAllowed, ConnectionLogin: ConnectionLogin, Connect: Connect, NoEndpoint: Connect,
		GoAway: Connect, Reset: Reset, Malformed: Malformed, ResponseTooLarge: ResponseTooLarge, Deadline: Deadline, TryTimeout: Deadline,
		RequestTooLarge: RequestTooLarge, BadRequest: BadRequest,
	} {
		if got := OfReason(f.Reason()); got != want {
			t.Errorf("%s is %s at the other sidecar, want %s", f.Code, got.Code, want.Code)
		}
	}
	for why := range link.Reason(255) {
		got := OfReason(why)
		if got == nil {
			t.Fatalf("the reason %d is no failure", why)
		}
		if known := failures[why]; known == nil && (got == Overloaded) != why.Retryable() {
			t.Errorf("the reason %d, which may be retried: %t, is %s", why, why.Retryable(), got.Code)
		}
	}
}

// TestOfCode: after which codes of another sidecar a stream may be sent again.
func TestOfCode(t *testing.T) {
	again := []*Failure{Draining, Connect, GoAway, Refused, Reset}
	for _, f := range all {
		got := OfCode([]byte(f.Code))
		if want := slices.Contains(again, f); want != (got != nil) || want && got.Code != f.Code {
			t.Errorf("%s: %v", f.Code, got)
		}
	}
}

// TestOfErrors: what a client is told of the errors of codecs.
func TestOfErrors(t *testing.T) {
	plain := errors.New("a plain error")
	of, call := &http1.Error{Code: "c", Status: 431, Text: "t"}, &dubbo.Error{Code: "d", Status: 413, Text: "u"}
	for _, c := range []struct{ got, want *Failure }{
		{OfRequest(plain), &Failure{Code: "bad-request", Status: 400, Text: "a plain error"}},
		{OfRequest(of), &Failure{Code: "c", Status: 431, Text: "t"}},
		{OfCall(call), &Failure{Code: "d", Status: 413, Text: "u"}},
		{OfCall(plain), BadRequest},
	} {
		if *c.got != *c.want {
			t.Errorf("%+v, want %+v", c.got, c.want)
		}
	}
}
