package trace_test

import (
	"testing"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/telemetry/trace"
)

// TestGRPCWrong: each code but ok is an error to a client, and some are to a server.
func TestGRPCWrong(t *testing.T) {
	ofServer := map[protocol.GRPCCode]bool{
		protocol.GRPCUnknown: true, protocol.GRPCDeadlineExceeded: true, protocol.GRPCUnimplemented: true, protocol.GRPCInternal: true,
		protocol.GRPCUnavailable: true, protocol.GRPCDataLoss: true, protocol.GRPCOther: true,
	}
	for code := range protocol.GRPCCode(protocol.GRPCCodes) {
		for _, known := range []bool{true, false} {
			g := trace.GRPC{Known: known, Code: code}
			if client, server := g.Wrong(true), g.Wrong(false); client != (known && code != protocol.GRPCOK) || server != (known && ofServer[code]) {
				t.Errorf("%s, known %t: an error to a client %t, to a server %t", code, known, client, server)
			}
		}
	}
}

// TestRecordSpans: a record has a span for the request and one for each attempt.
func TestRecordSpans(t *testing.T) {
	r := trace.Record{Attempts: make([]trace.Attempt, 3)}
	for want := 1; want <= 3; want++ {
		if got := r.Spans(); got != want {
			t.Errorf("%d spans, want %d", got, want)
		}
		r.Attempts[want-1].Span[7] = 1
	}
}

// TestAttemptNotes: the outcome of an attempt that was cancelled stays.
func TestAttemptNotes(t *testing.T) {
	var a trace.Attempt
	a.Note(trace.Failed, 503, "x")
	a.Note(trace.Won, 200, "")
	if a.Outcome != trace.Won || a.Status != 200 || a.Error != "" {
		t.Errorf("%+v", a)
	}
	a.Withdraw(5)
	a.Note(trace.Failed, 503, "x")
	if a.Outcome != trace.Cancelled || a.Withdrawn != 5 || a.Status != 200 {
		t.Errorf("%+v", a)
	}
	var none *trace.Attempt
	none.Note(trace.Won, 200, "")
	none.Withdraw(1)
}
