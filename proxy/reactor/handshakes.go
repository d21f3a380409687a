package reactor

import (
	"net/netip"
	"time"

	"github.com/remora-proxy/remora/proxy/fair"
	"github.com/remora-proxy/remora/proxy/fair/share"
)

const (
	// maxHandshakes limits the TLS handshakes of accepted connections in progress, from a whole
	// ClientHello on. handshakeTimeout limits their time, from the accepted connection on.
	maxHandshakes    = 512
	handshakeTimeout = 5 * time.Second

	// reservedHandshakes are further ones, for sources of which a peer has proved who it is.
	reservedHandshakes = 128
)

// handshakes divides the places for TLS handshakes of accepted connections among their sources. Any goroutine may call
// its methods.
type handshakes struct {
	places   *fair.Table
	reserved *fair.Table // further places, for known sources
	known    fair.Known  // sources of which a peer has shown a certificate
	timeout  time.Duration

	computing // for dials, too
}

func newHandshakes(loops int) handshakes {
	return handshakes{
		places: fair.NewTable(maxHandshakes), reserved: fair.NewTable(reservedHandshakes), timeout: handshakeTimeout,
		computing: newComputing(loops),
	}
}

// take returns a place for a handshake with a peer at source, or nil. giveWay is called when another handshake gets the
// place. No handshake gives way to another of its own source: if both wait for the CPU, neither would ever end.
func (h *handshakes) take(source netip.Addr, giveWay func()) *fair.Place {
	if h.known.Has(source) {
		if place := h.reserved.Take(share.Source{Peer: source}, giveWay); place != nil {
			return place
		}
	}
	return h.places.Take(share.Source{Peer: source}, giveWay)
}

// know notes that a peer at source has proved who it is.
func (h *handshakes) know(source netip.Addr) { h.known.Add(source) }

// inProgress returns how many handshakes have a place, and how many may have one.
func (h *handshakes) inProgress() (taken, max int) {
	return h.places.Taken() + h.reserved.Taken(), h.places.Max() + h.reserved.Max()
}
