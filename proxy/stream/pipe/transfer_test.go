package pipe

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/loop"
)

// TestBothWays passes much data both ways at once, in pieces of all sizes, and checks the bounds.
func TestBothWays(t *testing.T) {
	e := newEnds(t)
	const total, window = 4 << 20, 64 << 10
	want := make([]byte, total)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range want {
		want[i] = byte(random.Uint32())
	}
	var up []byte
	done := make(chan []byte, 1)
	go func() {
		b, err := io.ReadAll(e.socket)
		if err != nil {
			t.Error(err)
		}
		done <- b
	}()
	go func() {
		for rest, r := want, rand.New(rand.NewPCG(3, 4)); len(rest) > 0; {
			n := min(len(rest), 1+r.IntN(100<<10))
			if m, err := e.socket.Write(rest[:n]); m != n || err != nil {
				t.Error(m, err)
			}
			rest = rest[n:]
		}
		_ = e.socket.CloseWrite()
	}()
	sent, granted := 0, window
	for ended := false; sent < total || !ended; {
		for sent < total && granted > 0 {
			n := min(total-sent, granted, 1+random.IntN(20<<10))
			e.pipe.Deliver(want[sent : sent+n])
			sent, granted = sent+n, granted-n
		}
		for b := e.pipe.Output(); len(b) > 0; b = e.pipe.Output() {
			n := 1 + random.IntN(len(b))
			up = append(up, b[:n]...)
			e.pipe.Consume(n)
		}
		ended = e.pipe.State() == loop.PipeEnded && e.pipe.Output() == nil
		if sent < total && granted == 0 || !ended {
			e.turn()
			granted += e.pipe.Taken()
		}
	}
	e.pipe.End()
	down := within(t, func() []byte { return <-done })
	if !bytes.Equal(down, want) || !bytes.Equal(up, want) {
		t.Errorf("%d and %d bytes arrived changed", len(down), len(up))
	}
	if most := e.held.most.Load(); most > window+Capacity+4*blockSize {
		t.Errorf("%d bytes were held", most)
	}
	if n, left := e.socket.Input(); n != total || left != 0 {
		t.Errorf("%d in, %d of them not read", n, left)
	}
}

// TestRandom calls all methods at random from several goroutines, for the race detector.
func TestRandom(t *testing.T) {
	for seed := range uint64(50) {
		e := newEnds(t)
		var all sync.WaitGroup
		stopped := make(chan struct{})
		for i := range uint64(3) {
			all.Go(func() {
				r := rand.New(rand.NewPCG(seed, i))
				b := make([]byte, 40<<10)
				for range 50 {
					_ = e.socket.SetDeadline(time.Now().Add(time.Millisecond))
					switch r.IntN(30) {
					case 0:
						e.socket.Reset()
					case 1:
						_ = e.socket.Close()
					case 2:
						_ = e.socket.CloseWrite()
					case 3:
						e.socket.Drain(time.Microsecond)
					case 4:
						e.socket.IsReset()
					default:
						if r.IntN(2) == 0 {
							_, _ = e.socket.Read(b[:r.IntN(len(b))])
						} else {
							_, _ = e.socket.Write(b[:r.IntN(len(b))])
						}
					}
				}
			})
		}
		go func() { all.Wait(); close(stopped) }()
		r := rand.New(rand.NewPCG(seed, 99))
		for going := true; going; {
			select {
			case f := <-e.loop.c:
				f()
			case <-stopped:
				going = false
			default:
				if _, left := e.socket.Input(); left < 64<<10 {
					e.pipe.Deliver(make([]byte, r.IntN(20<<10)))
				}
			}
			e.pipe.Consume(len(e.pipe.Output()))
			e.pipe.Taken()
			if r.IntN(10000) == 0 {
				e.pipe.Close(nil)
			}
		}
	}
}

// BenchmarkBothWays passes a short message to the goroutine and back.
func BenchmarkBothWays(b *testing.B) {
	l := &posts{c: make(chan func(), 64)}
	var h held
	p, s := New(context.Background(), &h, l, "", func() {})
	go func() {
		buf := make([]byte, 1<<10)
		for {
			n, err := s.Read(buf)
			if err != nil {
				return
			}
			_, _ = s.Write(buf[:n])
		}
	}()
	msg := make([]byte, 100)
	b.ReportAllocs()
	for b.Loop() {
		p.Deliver(msg)
		for got := 0; got < len(msg); {
			(<-l.c)()
			n := len(p.Output())
			got += n
			p.Consume(n)
		}
	}
	_ = s.Close()
	p.Close(nil)
}
