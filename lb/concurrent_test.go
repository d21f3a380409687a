package lb

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"
)

// The counts of a process move while another loop picks: a pick among usable
// endpoints finds one all the same.
func TestPickWhileOtherLoopsCount(t *testing.T) {
	var s Set
	s.Update([]Target{{Addr: "a"}, {Addr: "b"}, {Addr: "c"}})
	for i := range s.Len() {
		s.At(i).CountIn(new(atomic.Int32))
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for n := int32(0); ; n++ {
			select {
			case <-stop:
				return
			default:
				for i := range s.Len() {
					s.At(i).process.Store(n * int32(i+1) % 7)
				}
			}
		}
	}()
	rnd := rand.NewPCG(1, 1)
	for range 2_000_000 {
		if s.Pick(0, rnd, nil) == nil {
			t.Error("no endpoint was picked of three that are usable")
			break
		}
	}
	close(stop)
	<-stopped
}
