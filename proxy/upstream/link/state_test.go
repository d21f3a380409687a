package link

import (
	"cmp"
	"log/slog"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/service"
	"github.com/remora-proxy/remora/proxy/shard"
)

// stillLoop is a loop on which nothing happens.
type stillLoop struct {
	loop.Loop
	now time.Duration
}

func (l *stillLoop) Now() time.Duration             { return l.now }
func (*stillLoop) After(time.Duration, *loop.Timer) {}
func (*stillLoop) Stop(*loop.Timer)                 {}
func (*stillLoop) Defer(*loop.Flush)                {}

func newShard(l loop.Loop) *shard.Shard {
	s := shard.New(new(shard.Process), 0, l, slog.New(slog.DiscardHandler), 1)
	s.Config = &config.Config{Timeouts: config.Timeouts{Write: time.Minute}}
	return s
}

// fullConn is a connection whose peer has not taken so many bytes.
type fullConn struct {
	loop.Conn
	left int
}

func (c fullConn) Buffered() int { return c.left }

// TestLargest: a link counts among those that hold memory until it closes, with what has arrived and what the peer has not taken.
func TestLargest(t *testing.T) {
	s, u := newShard(&stillLoop{}), &upstream{}
	add := func(requests, arrived, left int) *client {
		c := &client{up: u}
		c.calls.init(c)
		for id := range requests {
			c.calls.all.Put(uint64(id+1), new(race.Attempt))
		}
		c.Account.Count(s, arrived, 0)
		c.Outbound.Init(s)
		c.Outbound.Conn = fullConn{left: left}
		c.Outbound.Watch()
		u.all = append(u.all, c)
		return c
	}
	idle, two, one := add(0, 50, 0), add(2, 80, 20), add(1, 30, 40)
	u.cur = two
	for _, step := range []struct {
		closes     *client // before
		held, each int
		h          shard.Holder
	}{{nil, 100, 50, two}, {two, 70, 70, one}, {one, 50, 50, idle}, {idle, 0, 0, nil}} {
		if step.closes != nil {
			u.remove(step.closes)
		}
		if held, each, h := u.Largest(); held != step.held || each != step.each || h != step.h {
			t.Errorf("%d links: %d bytes, %d for each request, want %d, %d", u.Connections(), held, each, step.held, step.each)
		}
	}
	if u.Connections() != 0 || u.cur != nil {
		t.Errorf("%d links are left, the one for requests: %v", u.Connections(), u.cur)
	}
	empty := add(0, 0, 0)
	if held, each, h := u.Largest(); held != 0 || each != 0 || h != empty {
		t.Errorf("a link that holds nothing: %d bytes, %d for each request, %v", held, each, h)
	}
}

// TestTellsStart: a link tells when requests start once it is open to a peer that can say so.
func TestTellsStart(t *testing.T) {
	u := &upstream{}
	if u.TellsStart() {
		t.Error("without a link")
	}
	u.cur = &client{up: u}
	u.cur.calls.init(u.cur)
	if u.TellsStart() {
		t.Error("before the preface of the peer")
	}
	for features, want := range map[uint64]bool{0: false, link.FeatureProbes: false, link.FeatureStarts: true, link.FeatureStarts | link.FeatureProbes: true} {
		u.cur.calls.setPeer(link.Settings{MaxStreams: 1, Features: features})
		if got := u.TellsStart(); got != want {
			t.Errorf("with the features %b: %t", features, got)
		}
	}
}

// TestProbe: a probe goes to a peer that answers probes, unless earlier output waits. Until it is lost none follows.
func TestProbe(t *testing.T) {
	for _, c := range []struct {
		name          string
		features      uint64
		left          int           // bytes that the peer has not taken
		after         time.Duration // the time since another probe; 0 means that there was none
		now           time.Duration // of the loop; 0 means a second
		want          bool
		sent, dropped uint64
	}{
		{"the peer answers none", link.FeatureStarts, 0, 0, 0, false, 0, 0},
		{"the first", link.FeatureProbes, 0, 0, 0, true, 1, 0},
		{"the first, on a young loop", link.FeatureProbes, 0, 0, probeLost / 2, true, 1, 0},
		{"one was sent at the start of the loop", link.FeatureProbes, 0, probeLost/2 - 1, probeLost / 2, true, 0, 0},
		{"output waits", link.FeatureProbes, 1, 0, 0, false, 0, 1},
		{"one is on the way", link.FeatureProbes, 0, probeLost - 1, 0, true, 0, 0},
		{"one is lost", link.FeatureProbes, 0, probeLost, 0, true, 1, 0},
	} {
		l := &stillLoop{now: cmp.Or(c.now, time.Second)}
		of := &service.Service{}
		client := &client{up: &upstream{service: of}}
		client.calls.init(client)
		client.Init(newShard(l), link.NewDialer(link.Settings{}, link.ReaderLimits{}, &client.calls), client)
		client.Transport = fullConn{left: c.left}
		client.OnPreface(1, link.Settings{MaxStreams: 1, Features: c.features})
		if c.after > 0 {
			client.probes.sent = l.now - c.after
		}
		if got := client.probe(); got != c.want || of.Stats.Probes.Sent != c.sent || of.Stats.Probes.Dropped != c.dropped {
			t.Errorf("%s: %t, counted %+v", c.name, got, of.Stats.Probes)
		}
	}
}

// countingConn is a connection that counts what is written.
type countingConn struct {
	fullConn
	writes *int
}

func (c countingConn) Write([]byte)        { *c.writes++ }
func (c countingConn) WriteParts([][]byte) { *c.writes++ }

// TestOnlyCallFlushes: a frame about the only call of a link leaves at once. One about a call among others waits for the end of the turn.
func TestOnlyCallFlushes(t *testing.T) {
	for name, say := range map[string]func(cs *calls, a *race.Attempt){"start": (*calls).AskStart, "withdraw": (*calls).Withdraw} {
		for n, want := range map[int]int{1: 1, 2: 0} {
			writes := 0
			c := &client{up: &upstream{service: &service.Service{}}}
			c.calls.init(c)
			c.Init(newShard(&stillLoop{}), link.NewDialer(link.Settings{}, link.ReaderLimits{}, &c.calls), c)
			conn := countingConn{writes: &writes}
			c.Transport, c.Outbound.Conn = conn, conn
			c.OnPreface(1, link.Settings{Features: link.FeatureStarts})
			c.Flush()
			all := make([]race.Attempt, n)
			for i := range all {
				all[i].Carry(&c.calls, uint64(i+1))
				c.calls.all.Put(uint64(i+1), &all[i])
			}
			before := writes
			if say(&c.calls, &all[0]); writes-before != want {
				t.Errorf("%s: %d writes with %d calls on the link", name, writes-before, n)
			}
		}
	}
}
