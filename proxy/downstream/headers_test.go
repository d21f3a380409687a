package downstream

import (
	"math/rand/v2"
	"testing"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/exchange"
)

// TestRemovedHeadersAreCleared checks that a pooled exchange does not keep the memory of headers
// that PrepareRequest removed.
func TestRemovedHeadersAreCleared(t *testing.T) {
	ex := &exchange.Exchange{}
	for range 100 {
		ex.Request.Headers = append(ex.Request.Headers, protocol.Header{Name: []byte("x-remora-attempt"), Value: []byte("1")})
	}
	PrepareRequest(ex, rand.NewPCG(1, 2), &Origin{Listener: &exchange.Listener{}}, protocol.ViaValues[1])
	for i, h := range ex.Request.Headers[:100] {
		if i >= len(ex.Request.Headers) && (h.Name != nil || h.Value != nil) {
			t.Fatalf("header %d of %d is %q", i, len(ex.Request.Headers), h)
		}
	}
}
