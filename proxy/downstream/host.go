package downstream

import (
	"cmp"
	"slices"
	"time"

	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/shard"
)

// Host is what the sessions of one loop share.
type Host struct {
	*shard.Shard
	Pool     *exchange.Pool
	Router   *exchange.Router
	Sessions SessionList
	counted  int // how many of Sessions are in Process.Sessions
	idle     idleList
	Streams  Streams     // carries streams; nil means that there are none
	Opener   race.Opener // gives endpoints of this loop to streams
	HTTP2    Acceptor    // for connections of HTTP that turn out to be HTTP/2
}

// Acceptor returns the session of a connection that l accepted, for one protocol on l's loop.
type Acceptor func(l *exchange.Listener) loop.Receiver

// Add lists a session whose connection has opened.
func (h *Host) Add(s session) {
	h.Sessions.add(s)
	h.countSessions()
	h.Stats.Connections++
}

// OnClosed removes a session from the list when its connection has closed.
func (h *Host) OnClosed(s session) {
	h.Remove(s)
	h.Stats.Connections--
}

// Remove removes a session from the list, if it is there. Its connection still counts.
func (h *Host) Remove(s session) {
	h.StopIdle(s.node())
	h.Sessions.remove(s)
	h.countSessions()
}

// Refuse counts and logs a request that failed with f and never began. ex is nil if none was read.
func (h *Host) Refuse(from exchange.Caller, ex *exchange.Exchange, f *fault.Failure) {
	exchange.RecordRefused(h.Shard, from, ex, f)
	var e shard.Example
	if ex != nil {
		e = ex.Example()
	}
	shard.LogExample(h.Shard, exchange.ClientOf(from), "", e, f)
}

// InTransit is how long a request may be on its way to a session that must close.
const InTransit = time.Second

// countSessions adds what has changed since the last call to the count of the process.
func (h *Host) countSessions() {
	n := len(h.Sessions)
	h.Process.Sessions.Add(int64(n - h.counted))
	h.counted = n
}

// Reclaim closes idle sessions, those that hold the most first, until interning tables take
// clearly less than their part of limits.buffered.
func (h *Host) Reclaim() {
	type holder struct {
		bytes   int
		session session
	}
	var idle []holder
	for _, s := range slices.Backward(h.Sessions) {
		if n := s.Reclaimable(); n > 0 {
			idle = append(idle, holder{n, s})
		}
	}
	slices.SortStableFunc(idle, func(a, b holder) int { return cmp.Compare(b.bytes, a.bytes) })
	for _, i := range idle {
		if !h.Tables.Over() {
			break
		}
		h.Log.Warn("idle connection closed: interning tables take half of limits.buffered", "bytes", i.bytes)
		h.Stats.Shed++
		i.session.CloseIdle()
	}
	h.Tables.Reclaimed()
}
