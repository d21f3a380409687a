package race

import (
	"testing"

	"github.com/remora-proxy/remora/proxy/fault"
)

// TestTakenElsewhere: a refused hedge goes to another endpoint, unless no endpoint takes its request.
func TestTakenElsewhere(t *testing.T) {
	for f, want := range map[*fault.Failure]bool{
		fault.NoSlot: true, fault.Connect: true, fault.Refused: true, fault.StreamLimit: true, fault.Overloaded: true,
		fault.RateLimited: true, fault.PoolExhausted: true,
		fault.NotAllowed: false, fault.BadRequest: false, fault.NotConvertible: false, fault.NoRoute: false,
		fault.RequestTooLarge: false, fault.QueueFull: false,
	} {
		if got := takenElsewhere(f); got != want {
			t.Errorf("%s: %v, want %v", f.Code, got, want)
		}
	}
}
