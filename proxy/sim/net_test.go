package sim

import (
	"testing"
	"time"
)

// TestBusy checks that Busy is the time at which the last of the accepted bytes leaves, even
// if there is no limit any more.
func TestBusy(t *testing.T) {
	p := newTwo(t, 1)
	p.fixed(ms, 1<<20)
	p.connect(t)
	if busy := p.w.Net.Busy(); busy > p.w.Now() {
		t.Errorf("busy until %v without output, at %v", busy, p.w.Now())
	}
	p.at.write(p.a, slowSegment)
	p.w.Run(ms)
	busy := p.w.Net.Busy()
	if left := busy - p.w.Now(); left < 13*ms || left > 16*ms {
		t.Errorf("busy for %v with 1/64 of a second's output, 1 ms after it was written", left)
	}
	p.fixed(ms, 0)
	p.w.Run(time.Second)
	if took := p.to.last - busy; p.to.got != slowSegment || took < ms || took > 2*ms {
		t.Errorf("%d bytes arrived %v after the last had left, want 1 ms", p.to.got, took)
	}
	if p.w.Net.Busy() != busy {
		t.Errorf("busy until %v, and until %v without a limit", busy, p.w.Net.Busy())
	}
}
