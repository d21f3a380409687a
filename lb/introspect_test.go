package lb

import (
	"testing"
	"time"
)

func TestReported(t *testing.T) {
	var s Set
	added, _ := s.Update([]Target{{Addr: "a", Weight: 4}})
	e := added[0]
	if n, ok := e.Reported(0); ok {
		t.Errorf("%v is reported before any report", n)
	}
	e.Report(time.Second, Load{Pending: 7, SinceAnswer: -1}, 2)
	if n, ok := e.Reported(time.Second); n != 5 || !ok {
		t.Errorf("reported %v, %v; want 5 of others", n, ok)
	}
	if n, ok := e.Reported(2*time.Second - 1); n != 5 || !ok {
		t.Errorf("reported %v, %v within the second", n, ok)
	}
	if n, ok := e.Reported(2 * time.Second); ok {
		t.Errorf("%v is reported after a second", n)
	}
}
