package proxy

import (
	"math/rand/v2"
	"testing"

	"github.com/remora-proxy/remora/protocol"
)

// TestArriveForgetsWhatItTakesOut: an exchange that is kept to be used again is not to
// keep the memory of headers that are no more in its list.
func TestArriveForgetsWhatItTakesOut(t *testing.T) {
	ex := &exchange{}
	for range 100 {
		ex.req.Headers = append(ex.req.Headers, protocol.Header{Name: []byte("x-remora-attempt"), Value: []byte("1")})
	}
	arrive(ex, rand.NewPCG(1, 2), &origin{}, 1)
	for i, h := range ex.req.Headers[:100] {
		if i >= len(ex.req.Headers) && (h.Name != nil || h.Value != nil) {
			t.Fatalf("header %d of %d is %q", i, len(ex.req.Headers), h)
		}
	}
}
