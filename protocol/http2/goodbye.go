package http2

import (
	"encoding/binary"
	"slices"
)

// goodbye is what GOAWAY frames have said, ours and the peer's.
type goodbye struct {
	*Conn
	asked  bool   // we have sent one
	final  bool   // one has named the last stream that is accepted
	last   uint32 // that stream
	pinged bool   // a PING is under way whose response makes our GOAWAY final
	peer   bool   // the peer has sent one
}

// drainPing is the data of the PING behind the first GOAWAY.
const drainPing = 0x72656d6f72610001

// said reports whether either side has sent a GOAWAY.
func (g *goodbye) said() bool { return g.asked || g.peer }

// isFinal reports whether our GOAWAY has named the last stream that is accepted.
func (g *goodbye) isFinal() bool { return g.final }

// drops reports whether a stream of the peer began behind the last one that is accepted.
func (g *goodbye) drops(id uint32) bool { return g.final && !g.client && id > g.last }

// drain sends a GOAWAY that is not final, and asks the peer to say when it has read it.
func (g *goodbye) drain() {
	if g.asked || !g.usable() {
		return
	}
	g.asked, g.pinged = true, true
	g.w.goAway(maxID, NoError)
	g.w.ping(drainPing)
}

// onPong makes our GOAWAY final if data is that of the PING behind it. It reports whether that is so.
func (g *goodbye) onPong(data uint64) bool {
	if data != drainPing || !g.pinged {
		return false
	}
	g.pinged = false
	g.finish(NoError)
	return true
}

// finish sends the final GOAWAY.
func (g *goodbye) finish(code Code) {
	if g.final || !g.usable() {
		return
	}
	g.asked, g.final, g.last = true, true, g.streams.last()
	g.queue(code)
}

// queue queues a GOAWAY that names the last stream of the peer which is accepted, or has begun.
func (g *goodbye) queue(code Code) {
	last := g.streams.last()
	switch {
	case g.client:
		last = 0 // all streams are ours
	case g.final:
		last = g.last
	}
	g.w.goAway(last, code)
}

// receive handles a GOAWAY frame: our streams above the last id were not processed.
func (g *goodbye) receive(f frame, b []byte) {
	switch {
	case f.id != 0:
		g.fail(ErrStreamID)
		return
	case len(b) < 8:
		g.fail(ErrFrameSize)
		return
	}
	last, code := binary.BigEndian.Uint32(b)&maxID, Code(binary.BigEndian.Uint32(b[4:]))
	if g.count(floodOthers); !g.usable() {
		return
	}
	if g.peer = true; !g.client {
		return
	}
	g.responses.OnGoAway(last, code)
	var above []uint32 // ids, since a handler may end other streams meanwhile
	for _, st := range g.streams.all() {
		if st != nil && st.id > last {
			above = append(above, st.id)
		}
	}
	slices.Sort(above)
	for _, id := range above {
		if st := g.streams.get(id); st != nil && g.usable() {
			g.streams.endByPeer(st, RefusedStream, ErrUnprocessed)
		}
	}
}
