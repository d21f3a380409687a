package reactor

import (
	"bytes"
	"testing"

	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// TestStats: a loop counts its events and turns, and a turn with a slow callback as a
// long one.
func TestStats(t *testing.T) {
	e := start(t, Options{Loops: 1})
	l := e.Loops()[0].(stats.Metered)
	read := func() (s stats.LoopStats) {
		done := make(chan struct{})
		post := e.Loops()[0].Post
		post(func() { post(func() { s = l.Stats(); close(done) }) }) // in the next turn: one in progress is not counted
		<-done
		return s
	}
	before := read()
	ln, err := e.Listen("127.0.0.1:0", ListenOptions{}, func(loop.Loop, string) loop.Receiver { return echo() })
	if err != nil {
		t.Fatal(err)
	}
	c := must.Dial(t, "tcp", ln.Addr().String())
	const calls = 20
	for range calls {
		response := make([]byte, 4)
		must.Write(t, c, "ping")
		if _, err := c.Read(response); err != nil || !bytes.Equal(response, []byte("ping")) {
			t.Fatalf("%q, %v", response, err)
		}
	}
	after := read()
	if events := after.Events - before.Events; events < calls || after.Connections != 1 {
		t.Errorf("%d events of %d calls, %d connections", events, calls, after.Connections)
	}
	// gnet ends a turn after the next poll: it may have the next call, which came meanwhile.
	turns := after.Turns.Count() - before.Turns.Count()
	if turns == 0 || after.TurnEvents.Sum-before.TurnEvents.Sum < calls || after.Turns.Sum <= before.Turns.Sum {
		t.Errorf("%d turns: %+v, then %+v", turns, before, after)
	}
}

// TestLoopsShareTime: times of different loops can be compared.
func TestLoopsShareTime(t *testing.T) {
	e := start(t, Options{Loops: 4})
	for range 20 {
		last := int64(0)
		for _, l := range e.Loops() {
			now := make(chan int64, 1)
			l.Post(func() { now <- int64(l.Now()) })
			if n := <-now; n < last {
				t.Fatalf("a loop reports %d after another has reported %d", n, last)
			} else {
				last = n
			}
		}
	}
}
