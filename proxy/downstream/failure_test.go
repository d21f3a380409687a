package downstream

import (
	"testing"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/fault"
)

// TestGRPCFailure: a gRPC caller gets a response of headers alone, from which it reads the code.
func TestGRPCFailure(t *testing.T) {
	f := *fault.Deadline
	f.Text = "100% late"
	for _, id := range []string{"", "7"} {
		var given []byte
		if id != "" {
			given = []byte(id)
		}
		res := GRPCFailure(&f, given)
		for name, want := range map[string]string{
			"content-type": "application/grpc", "grpc-status": "4", "grpc-message": "100%25 late", "x-remora-error": "deadline", "x-request-id": id,
		} {
			if got := string(protocol.Find(res.Headers, name)); got != want {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
		if code, ok := protocol.GRPCStatus(&res); !ok || code != protocol.GRPCDeadlineExceeded || !protocol.IsGRPC(res.Headers) {
			t.Errorf("code %v, %v", code, ok)
		}
	}
}
