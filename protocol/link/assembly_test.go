package link

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"
)

func TestExpireMessage(t *testing.T) {
	d, a := newLink(t, Settings{}, ReaderLimits{})
	exchange(t, d, a)
	d.w.Request(1, big(1<<20), 0, nil)
	feed(t, a, d.w.Append(nil, 1)) // the start
	if !a.r.Midway() {
		t.Fatal("nothing is in reassembly")
	}
	for now := time.Second; now < 5*time.Second; now += time.Second {
		if err := a.r.Expire(now, 4*time.Second); err != nil || len(a.h.rejected) > 0 {
			t.Fatalf("at %v: error %v, rejected %v", now, err, a.h.rejected)
		}
		feed(t, a, d.w.Append(nil, 1)) // progress, but not the end
	}
	if err := a.r.Expire(5*time.Second, 4*time.Second); err != nil {
		t.Fatal(err)
	}
	if a.h.rejected[1] != DeadlinePassed || a.r.Midway() || a.r.Buffered() != 0 {
		t.Errorf("rejected %v, %d bytes held", a.h.rejected, a.r.Buffered())
	}
	d.w.Request(2, big(10), 0, nil)
	exchange(t, d, a)
	if a.h.requests[2] == nil || a.h.requests[1] != nil {
		t.Errorf("got %q", a.h.events)
	}
}

func TestExpireFrame(t *testing.T) {
	for _, c := range []struct {
		name string
		size int
	}{{"a whole message", 1000}, {"DATA", 100 << 10}} {
		t.Run(c.name, func(t *testing.T) {
			d, a := newLink(t, Settings{}, ReaderLimits{})
			exchange(t, d, a)
			d.w.Request(1, big(c.size), 0, nil)
			b := d.w.Append(nil, 1<<20)
			feed(t, a, b[:len(b)/2])
			if err := a.r.Expire(time.Second, time.Second); err != nil {
				t.Fatal(err)
			}
			feed(t, a, b[len(b)/2:len(b)/2+1])
			if err := a.r.Expire(2*time.Second, time.Second); err != ErrSlow {
				t.Errorf("got %v, want %v", err, ErrSlow)
			}
			if err := a.r.Feed(b[len(b)/2+1:]); err != ErrSlow {
				t.Errorf("Feed afterwards: %v", err)
			}
		})
	}
}

// A link is not slow if Expire always finds another frame incomplete.
func TestExpireBusyLink(t *testing.T) {
	d, a := newLink(t, Settings{}, ReaderLimits{})
	exchange(t, d, a)
	var b []byte
	for id := range uint64(10) {
		d.w.Request(id+1, big(1000), 0, nil)
		b = d.w.Append(b, 1<<20)
	}
	half := len(b) / 20
	feed(t, a, b[:half])
	b = b[half:]
	for now := time.Second; now < 9*time.Second; now += time.Second {
		if err := a.r.Expire(now, time.Second); err != nil {
			t.Fatalf("at %v: %v", now, err)
		}
		feed(t, a, b[:2*half])
		b = b[2*half:]
	}
}

// Frames of all kinds count: those that are kept until they are complete, and those that are passed on as they arrive.
func TestExpireBusyLinkOfBothKinds(t *testing.T) {
	_, a := newLink(t, Settings{}, ReaderLimits{})
	data := append(appendHeader(nil, uint8(frameData), 99, 4), "data"...)
	ping := appendHeader(nil, uint8(framePing), 1<<20, 0)
	feed(t, a, data[:3])
	for now := time.Second; now < 9*time.Second; now += time.Second {
		if err := a.r.Expire(now, time.Second); err != nil {
			t.Fatalf("at %v: %v", now, err)
		}
		feed(t, a, bytes.Join([][]byte{data[3:], ping, data[:3]}, nil)) // two frames end
	}
}

// An incomplete frame has its own time, however old the frame before it is.
func TestExpireIdleLink(t *testing.T) {
	d, a := newLink(t, Settings{}, ReaderLimits{})
	exchange(t, d, a)
	for now := time.Second; now < 50*time.Second; now += 10 * time.Second {
		d.w.Ping(1 << 20)
		b := d.w.Append(nil, 1<<20)
		feed(t, a, b[:1])
		for _, at := range []time.Duration{0, 500 * time.Millisecond} {
			if err := a.r.Expire(now+at, time.Second); err != nil {
				t.Fatalf("at %v: %v", now+at, err)
			}
		}
		feed(t, a, b[1:])
		if err := a.r.Expire(now+2*time.Second, time.Second); err != nil {
			t.Fatal(err)
		}
	}
}

func TestReassemblyFull(t *testing.T) {
	full := false
	d, a := newLink(t, Settings{}, ReaderLimits{Full: func(uint64) bool { return full }})
	d.w.Request(1, big(100<<10), 0, nil)
	exchange(t, d, a)
	full = true
	d.w.Request(2, big(100<<10), 0, nil)
	d.w.Request(3, big(10), 0, nil)
	exchange(t, d, a)
	if a.h.requests[1] == nil || a.h.rejected[2] != Overload || a.h.requests[3] == nil {
		t.Errorf("got %q", a.h.events)
	}
}

// TestExpireOrder: of several messages that are late, the first is rejected first.
func TestExpireOrder(t *testing.T) {
	const many = 20
	d, a := newLink(t, Settings{}, ReaderLimits{})
	for id := range uint64(many) {
		d.w.Request(id+1, big(20<<10), 0, nil)
	}
	feed(t, a, d.w.appendMessages(nil, 1<<30))
	var want []string
	for id := range many {
		want = append(want, fmt.Sprintf("reject %d deadline_passed", id+1))
	}
	for _, now := range []time.Duration{time.Second, 2 * time.Second} {
		if err := a.r.Expire(now, time.Second); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(a.h.events, want) {
		t.Errorf("got %q", a.h.events)
	}
}
