package http2

import "encoding/binary"

// pings sends PING frames, and responds to those of the peer.
//
// Calls in: receive takes a frame.
//
// Calls out: goodbye hears of responses.
type pings struct{ *Conn }

// send asks the peer for a response.
func (p *pings) send(data uint64) {
	if p.usable() {
		p.w.ping(data)
	}
}

// receive handles a PING frame.
func (p *pings) receive(f frame, b []byte) {
	switch {
	case f.id != 0:
		p.fail(ErrStreamID)
		return
	case len(b) != 8:
		p.fail(ErrFrameSize)
		return
	}
	data := binary.BigEndian.Uint64(b)
	switch {
	case !f.has(flagAck):
		if p.count(floodPings); p.usable() {
			p.w.pong(data)
		}
	case !p.goodbye.onPong(data):
		p.count(floodOthers)
	}
}
