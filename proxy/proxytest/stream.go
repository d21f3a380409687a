package proxytest

import (
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/shard"
)

// Opened is the result of Open.
type Opened struct {
	Stream  *race.Stream
	Target  race.Target
	Failure *fault.Failure
}

// Open opens a stream at compute.
func (n *Node) Open() Opened { return n.OpenFor(shard.Client{}) }

// OpenFor is Open for a stream of c.
func (n *Node) OpenFor(c shard.Client) Opened {
	n.m.T.Helper()
	var got *Opened
	n.Proc.Workers()[0].From(c).Open("compute", func(s *race.Stream, at race.Target, f *fault.Failure) {
		got = &Opened{s, at, f}
	})
	n.m.RunUntil("a result", func() bool { return got != nil })
	return *got
}

// RetryStream asks for another endpoint because the target refused the stream.
func (n *Node) RetryStream(s *race.Stream, why *fault.Failure) (f *fault.Failure) {
	n.m.T.Helper()
	done := false
	s.Retry(why, nil, func(_ *race.Stream, _ race.Target, fail *fault.Failure) { f, done = fail, true })
	n.m.RunUntil("a result", func() bool { return done })
	return f
}
