package share

import "net/netip"

// Counts are how many places each source has. The zero value has none. Of sources with as many places, the source with
// the lowest address comes first, so that a simulation replays.
type Counts struct {
	peers   map[netip.Addr]int
	clients map[Source]int // of each peer, by client
}

// Add counts one place of a source.
func (c *Counts) Add(source Source) {
	if c.peers == nil {
		c.peers, c.clients = make(map[netip.Addr]int), make(map[Source]int)
	}
	c.peers[source.Peer]++
	c.clients[source]++
}

// Remove uncounts one place of a source.
func (c *Counts) Remove(source Source) {
	subtract(c.peers, source.Peer)
	subtract(c.clients, source)
}

func subtract[K comparable](counts map[K]int, key K) {
	if counts[key]--; counts[key] == 0 {
		delete(counts, key)
	}
}

// Of returns the places of all clients of a peer.
func (c *Counts) Of(peer netip.Addr) int { return c.peers[peer] }

// Excess returns the source that must give a place to a newcomer. It is the largest client of the peer with the most
// places, if the newcomer's peer has at least two places fewer. Otherwise it is the largest client of the newcomer's
// own peer, if that client has at least two places more than the newcomer. With a difference of one, the two would
// only change roles. ok is false if there is no such source.
func (c *Counts) Excess(newcomer Source) (from Source, ok bool) {
	peer, most := c.largestPeer()
	if most <= c.peers[newcomer.Peer]+1 {
		from, most = c.largestClient(newcomer.Peer)
		return from, most > c.clients[newcomer]+1
	}
	from, _ = c.largestClient(peer)
	return from, true
}

// Largest returns the client with the most places of the newcomer's peer, or of the largest peer if the newcomer's peer
// has no place. ok is false if no source has a place.
func (c *Counts) Largest(newcomer Source) (from Source, ok bool) {
	peer := newcomer.Peer
	if c.peers[peer] == 0 {
		peer, _ = c.largestPeer()
	}
	from, n := c.largestClient(peer)
	return from, n > 0
}

func (c *Counts) largestPeer() (peer netip.Addr, most int) {
	for p, n := range c.peers {
		if n > most || n == most && p.Less(peer) {
			peer, most = p, n
		}
	}
	return peer, most
}

func (c *Counts) largestClient(peer netip.Addr) (source Source, most int) {
	for s, n := range c.clients {
		if s.Peer == peer && (n > most || n == most && s.Client.Less(source.Client)) {
			source, most = s, n
		}
	}
	return source, most
}
