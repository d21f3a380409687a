package sim

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/loop"
)

// TestOrderOfEvents: events come by time. Of one time, the network's come first, then scripts in their order, then turns.
func TestOrderOfEvents(t *testing.T) {
	c := clock{rand: random{rand.New(rand.NewPCG(1, 2))}}
	rank := func(k eventKind) int {
		switch k {
		case evScript:
			return 1
		case evWake:
			return 2
		}
		return 0
	}
	var scripts, ran []int
	pushed, popped := 0, 0
	last, at := event{}, time.Duration(0)
	for round := range 3000 {
		for range c.rand.IntN(3) * (1 - round/2500) {
			e := event{at: c.now + time.Duration(c.rand.IntN(4)), kind: eventKind(c.rand.IntN(int(evWake) + 1))}
			if e.kind == evScript {
				n := pushed
				e.f = func() { ran = append(ran, n) }
			}
			c.push(e)
			pushed++
		}
		e, ok := c.next(at + 1000)
		if !ok {
			continue
		}
		popped++
		if e.at < last.at || e.at != c.now {
			t.Fatalf("an event at %d after one at %d, the time is %d", e.at, last.at, c.now)
		}
		last, at = e, e.at
		if e.kind == evScript {
			e.f()
		}
	}
	if popped != pushed || pushed < 1000 {
		t.Errorf("%d events of %d", popped, pushed)
	}
	// Those that are all there before the first one is due come in the order of their kinds.
	c = clock{rand: c.rand}
	ran = nil
	for i := range 600 {
		e := event{kind: eventKind(c.rand.IntN(int(evWake) + 1))}
		if e.kind == evScript {
			scripts = append(scripts, i)
			e.f = func() { ran = append(ran, i) }
		}
		c.push(e)
	}
	before := 0
	for e, ok := c.next(0); ok; e, ok = c.next(0) {
		if rank(e.kind) < before {
			t.Fatalf("an event of kind %d after one of rank %d", e.kind, before)
		}
		if before = rank(e.kind); e.kind == evScript {
			e.f()
		}
	}
	if !slices.Equal(ran, scripts) {
		t.Error("scripts have lost their order")
	}
	if _, ok := c.next(7); ok || c.now != 7 {
		t.Errorf("without an event the time is %d", c.now)
	}
	c.push(event{at: 9, kind: evScript})
	if _, ok := c.next(8); ok || c.now != 8 {
		t.Errorf("before an event the time is %d", c.now)
	}
	if _, ok := c.next(9); !ok || c.now != 9 {
		t.Errorf("at an event the time is %d", c.now)
	}
}

// TestCut: what is cut is shorter, but not empty, and a quarter of it is a single byte.
func TestCut(t *testing.T) {
	r := random{rand.New(rand.NewPCG(1, 2))}
	const n, tries = 50, 20_000
	count := make([]int, n+1)
	for range tries {
		count[r.cut(n, 1)]++
	}
	if count[0] != 0 || count[n] != 0 || count[1] < tries/5 || count[1] > tries*3/10 {
		t.Errorf("%d of %d are empty, %d a single byte, %d whole", count[0], tries, count[1], count[n])
	}
	for length, times := range count[2:n] {
		if times == 0 {
			t.Errorf("no length is %d", length+2)
		}
	}
	whole := 0
	for range tries {
		if r.cut(n, 0.25) == n {
			whole++
		}
		if r.cut(n, 0) != n || r.cut(1, 1) != 1 || r.cut(0, 1) != 0 || r.cut(2, 1) != 1 {
			t.Fatal("too little is cut, or too much")
		}
	}
	if whole < tries*7/10 || whole > tries*8/10 {
		t.Errorf("%d of %d are whole, want three quarters", whole, tries)
	}
}

// TestDelay: a segment takes the latency, and at random up to the jitter.
func TestDelay(t *testing.T) {
	r := random{rand.New(rand.NewPCG(1, 2))}
	ln := link{path: Path{Latency: 100, Jitter: 10}}
	seen := map[time.Duration]bool{}
	for range 1000 {
		seen[ln.delay(r)] = true
	}
	for d := time.Duration(100); d < 110; d++ {
		if !seen[d] {
			t.Errorf("no segment takes %d", d)
		}
	}
	if len(seen) != 10 {
		t.Errorf("segments take %d times, want 10", len(seen))
	}
	ln.path.Jitter = 0
	if got := ln.delay(r); got != 100 {
		t.Errorf("without jitter %d", got)
	}
}

// TestOccupy: bytes leave a link one after another, at its bandwidth.
func TestOccupy(t *testing.T) {
	ln := link{path: Path{Bandwidth: 1000}}
	for _, c := range []struct {
		now  time.Duration
		n    int
		want time.Duration
	}{{0, 1000, time.Second}, {0, 500, 1500 * ms}, {time.Second, 100, 1600 * ms}, {5 * time.Second, 1, 5001 * ms}} {
		if got := ln.occupy(c.now, c.n); got != c.want {
			t.Errorf("%d bytes at %v have left at %v, want %v", c.n, c.now, got, c.want)
		}
	}
	ln.path.Bandwidth = 0
	if got := ln.occupy(time.Second, 1<<30); got != time.Second {
		t.Errorf("without a limit at %v", got)
	}
}

// TestPipe: a pipe has the bytes of a stream in order, whatever is read, dropped and truncated.
func TestPipe(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var p pipe
	var want []byte // unread, from p.read on
	next := byte(0)
	for range 20_000 {
		switch r.IntN(6) {
		case 0, 1:
			b := make([]byte, r.IntN(100))
			for i := range b {
				next++
				b[i] = next
			}
			p.append(b)
			want = append(want, b...)
		case 2:
			p.accept(r.IntN(150))
			if p.sent = p.kernel - int64(r.IntN(int(p.kernel-p.sent)+1)); r.IntN(2) == 0 {
				p.arrived = p.sent
			}
		case 3:
			b := make([]byte, r.IntN(int(p.unread())+1))
			if p.take(b); !bytes.Equal(b, want[:len(b)]) {
				t.Fatal("other bytes were read")
			}
			want = want[len(b):]
		case 4:
			want = want[p.unread():]
			if p.drop(); p.unread() != 0 {
				t.Fatal("bytes are left after a drop")
			}
		case 5:
			if r.IntN(20) > 0 {
				continue
			}
			to := p.sent + int64(r.IntN(int(p.written-p.sent)+1))
			want = want[:to-p.read]
			p.truncate(to)
		}
		if p.read > p.arrived || p.arrived > p.sent || p.sent > p.kernel || p.kernel > p.written || p.written-p.read != int64(len(want)) {
			t.Fatalf("%d %d %d %d %d, want %d bytes", p.read, p.arrived, p.sent, p.kernel, p.written, len(want))
		}
		if !bytes.Equal(p.buf[p.head:], want) {
			t.Fatal("the pipe has other bytes")
		}
	}
}

// TestPoison: memory of any length is overwritten, and taken without further capacity.
func TestPoison(t *testing.T) {
	var i inputBuffer
	for _, n := range []int{0, 1, 100, len(poisoned), len(poisoned) + 1, 3 * len(poisoned), 10} {
		b := i.take(n)
		if len(b) != n || cap(b) != n {
			t.Errorf("%d bytes, with capacity for %d, want %d", len(b), cap(b), n)
		}
		clear(b)
		if poison(b); bytes.Count(b, []byte{0xDB}) != n {
			t.Errorf("of %d bytes some are left", n)
		}
	}
}

// TestTraceHash: runs have different hashes if any part of an event differs, and one hash if none does.
func TestTraceHash(t *testing.T) {
	seen := map[uint64]bool{}
	for range 2 { // the second round adds no hash
		for _, at := range []time.Duration{0, 1 << 10} {
			for kind := evkOpen; kind <= evkFault; kind++ {
				for _, l := range []*Loop{nil, {id: 0}, {id: 1}} {
					for _, c := range []*conn{nil, {id: 1}, {id: 2}} {
						for _, n := range []int{0, 1, 2} {
							tr := trace{clock: &clock{now: at}}
							tr.note(kind, l, c, n)
							seen[tr.hash] = true
						}
					}
				}
			}
		}
	}
	if want := 2 * (int(evkFault) + 1) * 3 * 3 * 3; len(seen) != want {
		t.Errorf("%d hashes of %d events", len(seen), want)
	}
	first, second := trace{clock: &clock{}}, trace{clock: &clock{}}
	for i := range 2 {
		first.note(evkData, nil, nil, i)
		second.note(evkData, nil, nil, 1-i)
	}
	if first.hash == second.hash {
		t.Error("the order makes no difference")
	}
}

// TestResetAll: the connections between two hosts break, whoever has dialled, and no others.
func TestResetAll(t *testing.T) {
	w := New(1)
	hosts := []string{"a", "b", "c"}
	type pair struct{ from, to string }
	ends := map[pair]*end{}
	for i, to := range hosts {
		addr := "10.0.0." + string(rune('1'+i)) + ":80"
		w.Net.Listen(addr, w.Loop(to), func() loop.Receiver { return &end{w: w} })
		for _, from := range hosts {
			e := &end{w: w}
			ends[pair{from, to}] = e
			w.Loop(from).Do(func() { w.Loop(from).Dial(addr, 0, e) })
		}
	}
	w.Run(time.Second)
	w.Faults.ResetAll("a", "b")
	w.Run(time.Second)
	for p, e := range ends {
		if broken := p == (pair{"a", "b"}) || p == (pair{"b", "a"}); e.opened == 0 || e.closed != broken {
			t.Errorf("from %s to %s: open at %v, closed %t", p.from, p.to, e.opened, e.closed)
		}
	}
}

// TestHalfCloseEndsOutput: what is written after a half-close is not sent.
func TestHalfCloseEndsOutput(t *testing.T) {
	p := newTwo(t, 1)
	to := &stayer{end{w: p.w}}
	p.w.Net.Listen("10.0.0.2:81", p.b, func() loop.Receiver { return to })
	p.at = &end{w: p.w}
	p.a.Do(func() { p.a.Dial("10.0.0.2:81", 0, p.at) })
	p.w.Run(ms)
	p.at.write(p.a, 10)
	p.w.Faults.HalfClose(p.at.c)
	p.at.write(p.a, 10)
	p.w.Run(time.Second)
	to.write(p.b, 5)
	p.w.Run(time.Second)
	if to.got != 10 || to.closed || p.at.got != 5 {
		t.Errorf("%d bytes arrived before the end, closed %t; %d came back", to.got, to.closed, p.at.got)
	}
}
