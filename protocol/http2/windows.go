package http2

import "encoding/binary"

// windows applies the WINDOW_UPDATE frames of the peer to the send windows, which the writer keeps.
//
// Calls in: receive takes a frame.
//
// Calls out: a stream may end.
type windows struct{ *Conn }

// receive handles a WINDOW_UPDATE frame.
func (ws *windows) receive(f frame, b []byte) {
	if len(b) != 4 {
		ws.fail(ErrFrameSize)
		return
	}
	if ws.count(floodOthers); !ws.usable() {
		return
	}
	n := int(binary.BigEndian.Uint32(b) & maxWindow)
	if f.id == 0 {
		if why := ws.w.widen(n); why != nil {
			ws.fail(why)
		}
		return
	}
	st := ws.streams.get(f.id)
	if st == nil {
		if ws.streams.isIdle(f.id) {
			ws.fail(ErrIdle)
		}
		return
	}
	if why := ws.w.widenStream(st, n); why != nil {
		ws.streams.resetForError(st, why)
	}
}
