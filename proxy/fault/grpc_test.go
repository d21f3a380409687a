package fault

import (
	"errors"
	"testing"

	"github.com/remora-proxy/remora/protocol"
)

// TestGRPC: the codes that gRPC callers get.
func TestGRPC(t *testing.T) {
	for _, c := range []struct {
		f    *Failure
		want protocol.GRPCCode
	}{
		{Deadline, protocol.GRPCDeadlineExceeded}, {TryTimeout, protocol.GRPCDeadlineExceeded},
		{NoRoute, protocol.GRPCUnimplemented}, {Unsupported, protocol.GRPCUnimplemented},
		{NotAllowed, protocol.GRPCPermissionDenied}, {DirectRefused, protocol.GRPCPermissionDenied},
		{Overloaded, protocol.GRPCResourceExhausted}, {QueueFull, protocol.GRPCResourceExhausted},
		{RateLimited, protocol.GRPCResourceExhausted}, {Shed, protocol.GRPCResourceExhausted},
		{RequestTooLarge, protocol.GRPCResourceExhausted}, {ResponseTooLarge, protocol.GRPCResourceExhausted},
		{NoEndpoint, protocol.GRPCUnavailable}, {Connect, protocol.GRPCUnavailable}, {Reset, protocol.GRPCUnavailable},
		{GoAway, protocol.GRPCUnavailable}, {Draining, protocol.GRPCUnavailable}, {BreakerOpen, protocol.GRPCUnavailable},
		{Malformed, protocol.GRPCUnavailable}, {Loop, protocol.GRPCInternal}, {BadRequest, protocol.GRPCInternal},
		{OfRequest(errors.New("x")), protocol.GRPCInternal},
		{Injected.WithStatus(503), protocol.GRPCUnavailable}, {Injected.WithStatus(404), protocol.GRPCUnimplemented},
		{Injected.WithStatus(413), protocol.GRPCResourceExhausted}, {Injected.WithStatus(431), protocol.GRPCResourceExhausted},
		{Injected.WithStatus(501), protocol.GRPCUnimplemented},
		{Injected.WithStatus(500), protocol.GRPCUnknown}, {Deadline.WithStatus(503), protocol.GRPCDeadlineExceeded},
	} {
		if got := c.f.GRPC(); got != c.want {
			t.Errorf("%s %d: %v, want %v", c.f.Code, c.f.Status, got, c.want)
		}
	}
}

// TestStatusOfGRPC: each code counts as some status, and those of the server as a failure.
func TestStatusOfGRPC(t *testing.T) {
	bad := map[protocol.GRPCCode]bool{
		protocol.GRPCUnknown: true, protocol.GRPCDeadlineExceeded: true, protocol.GRPCInternal: true,
		protocol.GRPCUnavailable: true, protocol.GRPCDataLoss: true, protocol.GRPCOther: true,
	}
	for c := range protocol.GRPCCode(protocol.GRPCCodes) {
		status := StatusOfGRPC(c)
		if status < 200 || (VerdictOf(status) == VerdictBad) != bad[c] || (status == 200) != (c == protocol.GRPCOK) {
			t.Errorf("%v counts as %d", c, status)
		}
	}
}
