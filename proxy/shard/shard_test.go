package shard

import (
	"net/netip"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/fair/share"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/telemetry/trace"
)

// TestConfigure: messages keep the limits with which they began. A body has no limit if it can become a stream.
func TestConfigure(t *testing.T) {
	s, _ := newShard(1, config.Limits{Buffered: mib, Message: 7, Header: 8, Headers: 9})
	first, limits := s.BodyLimits(), protocol.Limits{Message: 7, Header: 8, Headers: 9}
	if *first != limits || s.Via {
		t.Errorf("bodies have the limits %+v; via %t", *first, s.Via)
	}
	s.Process.Streams = true
	s.Configure(&config.Config{Limits: config.Limits{Buffered: mib, Message: 1}, Via: config.ViaOn})
	if *first != limits || s.MessageLimits.Message != 1 || !s.Via {
		t.Errorf("now the limits are %+v and before %+v; via %t", *s.MessageLimits, *first, s.Via)
	}
	if noLimit := (protocol.Limits{Message: protocol.NoLimit}); *s.BodyLimits() != noLimit {
		t.Errorf("bodies that can become streams have the limits %+v", *s.BodyLimits())
	}
}

// TestSampler: traces are sampled if the configuration says so, and those of loops have ids of their own.
func TestSampler(t *testing.T) {
	ids := map[trace.SpanID]bool{}
	for i := range 4 {
		s := New(&Process{Loops: 4}, i, &turn{}, nil, 7)
		s.Configure(&config.Config{Limits: config.Limits{Buffered: mib}, Tracing: config.Tracing{Endpoint: "http://a.test", Sample: 1}})
		if !s.Sampler.On || !s.Sampler.Draw() {
			t.Errorf("loop %d samples nothing", i)
		}
		ids[s.Sampler.NewSpanID()] = true
	}
	if len(ids) != 4 {
		t.Errorf("%d ids of 4 loops", len(ids))
	}
}

// TestDraw: a share of the requests is drawn, whatever the share.
func TestDraw(t *testing.T) {
	s, _ := newShard(1, config.Limits{Buffered: mib, Message: mib})
	const all = 10_000
	for _, share := range []float64{0, 0.25, 0.75, 1} {
		n := 0.0
		for range all {
			if s.Draw(share) {
				n++
			}
		}
		if n < 0.95*share*all || n > 1.05*share*all {
			t.Errorf("%v of %d requests are drawn, want a share of %v", n, all, share)
		}
	}
}

// TestClientSource: the places of a client count for its own address, or for that of a client behind a sidecar.
func TestClientSource(t *testing.T) {
	behind := netip.MustParseAddr("192.0.2.1")
	for _, c := range []struct {
		of   Client
		want share.Source
	}{
		{Client{Addr: "10.0.0.1:5"}, share.Source{Peer: netip.MustParseAddr("10.0.0.1")}},
		{Client{Addr: "10.0.0.1:5", Behind: behind}, share.Source{Peer: netip.MustParseAddr("10.0.0.1"), Client: behind}},
		{Client{Addr: "[2001:db8::1]:5"}, share.Source{Peer: netip.MustParseAddr("2001:db8::")}},
		{Client{Addr: "@"}, share.Source{}},
	} {
		if got := c.of.Source(); got != c.want {
			t.Errorf("%+v: %+v, want %+v", c.of, got, c.want)
		}
	}
}

// TestNewPipe: a pipe is one of the shard's loop.
func TestNewPipe(t *testing.T) {
	s, l := newShard(1, config.Limits{Buffered: mib, Message: mib})
	became := ""
	s.Process.PipeMaker = func(of loop.Loop, remote string, ready func()) (loop.Pipe, loop.Socket) {
		if of != loop.Loop(l) {
			t.Error("the pipe is of another loop")
		}
		became = remote
		ready()
		return nil, nil
	}
	if s.NewPipe("10.0.0.1:5", func() { became += " ready" }); became != "10.0.0.1:5 ready" {
		t.Errorf("got %q", became)
	}
}

// TestKeepScratch: a shard keeps the encoding buffer empty, unless that has become long.
func TestKeepScratch(t *testing.T) {
	for room, kept := range map[int]int{maxScratch: maxScratch, maxScratch + 1: 0} {
		var o output
		if o.KeepScratch(make([]byte, room)); cap(o.Scratch) != kept || len(o.Scratch) != 0 {
			t.Errorf("of %d bytes %d are kept, %d of them in use", room, cap(o.Scratch), len(o.Scratch))
		}
	}
}

// TestDate: Date changes with the second of the clock, not of the loop.
func TestDate(t *testing.T) {
	s, l := newShard(1, config.Limits{Buffered: mib, Message: mib})
	if s.DateValue() != nil || !s.Process.Now().IsZero() {
		t.Error("there is a date without a clock")
	}
	start := time.Date(2026, 3, 29, 21, 59, 58, 250_000_000, time.FixedZone("", 7200))
	read := 0
	s.Process.WallClock = func() time.Time { read++; return start.Add(l.now) }
	for _, c := range []struct {
		at   time.Duration
		want string
		read int
	}{
		{0, "Sun, 29 Mar 2026 19:59:58 GMT", 1},
		{750*time.Millisecond - 1, "Sun, 29 Mar 2026 19:59:58 GMT", 1},
		{750 * time.Millisecond, "Sun, 29 Mar 2026 19:59:59 GMT", 2},
		{1750*time.Millisecond - 1, "Sun, 29 Mar 2026 19:59:59 GMT", 2},
		{time.Hour, "Sun, 29 Mar 2026 20:59:58 GMT", 3},
	} {
		l.now = c.at
		if got := string(s.DateValue()); got != c.want || read != c.read {
			t.Errorf("after %s: %s, the clock was read %d times", c.at, got, read)
		}
	}
	if got := s.Process.Now(); !got.Equal(start.Add(time.Hour)) {
		t.Errorf("it is %s", got)
	}
	if got := s.AccessLog.Wall(time.Hour); !got.Equal(start) {
		t.Errorf("an hour ago it was %s in the access log", got)
	}
}
