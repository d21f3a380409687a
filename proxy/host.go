package proxy

// host is what a loop lends to its downstream sessions.
type host struct {
	*shard
	pool     *pool
	router   *router
	sessions sessionList
	streamer Streams // carries streams; nil: nothing does
	leaser   Leaser  // of this loop, for streams
}

// acceptor makes the sessions of one protocol on one loop.
type acceptor interface {
	// accept makes the session of a connection that came in at l.
	accept(l *listener) Stream
}

// add lists a session that has opened.
func (h *host) add(s session) {
	h.sessions.add(s)
	h.shard.sessions = h.sessions.n
	h.stats.Connections++
}

// closed takes a session out of the list, once the connection has closed.
func (h *host) closed(s session) {
	h.remove(s)
	h.stats.Connections--
}

// remove takes a session out of the list, if it is there.
func (h *host) remove(s session) {
	h.sessions.remove(s)
	h.shard.sessions = h.sessions.n
}
