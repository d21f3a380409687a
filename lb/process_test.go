package lb

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"
)

// The counts of a process change while another loop picks. A pick among usable endpoints
// must still return one.
func TestPickConcurrentCounts(t *testing.T) {
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
		if s.Pick(Query{Now: 0, Rand: rnd}) == nil {
			t.Error("no pick among three usable endpoints")
			break
		}
	}
	close(stop)
	<-stopped
}
