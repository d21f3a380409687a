package http2

import "encoding/binary"

// settings applies the SETTINGS of the peer (RFC 9113 section 6.5). Our own are those of acks.
//
// Calls in: receive takes a frame.
//
// Calls out: the handler of a client hears that they have changed.
type settings struct {
	*Conn
	maxStreams int // how many streams at a time the peer allows
}

// reset prepares for a new connection.
func (s *settings) reset(c *Conn) { *s = settings{Conn: c, maxStreams: defaultStreams} }

// streamsLeft returns how many more streams the peer allows.
func (s *settings) streamsLeft() int { return s.maxStreams - s.streams.len() }

// receive handles a SETTINGS frame.
func (s *settings) receive(f frame, b []byte) {
	switch {
	case f.id != 0:
		s.fail(ErrStreamID)
		return
	case f.has(flagAck):
		s.acks.receive(b)
		return
	case len(b)%settingLen != 0:
		s.fail(ErrFrameSize)
		return
	}
	kind := floodSettings
	if len(b) == 0 { // a barrier, as our own clients send them
		kind = floodOthers
	}
	if s.count(kind); !s.usable() {
		return
	}
	if s.state == connSettings {
		s.become(connOpen)
	}
	window := -1
	for ; len(b) > 0; b = b[settingLen:] {
		k, v := setting(binary.BigEndian.Uint16(b)), binary.BigEndian.Uint32(b[2:])
		if why := s.apply(k, v); why != nil {
			s.fail(why)
			return
		}
		if k == settingInitialWindow {
			window = int(v)
		}
	}
	// Once, as it visits all streams.
	if window >= 0 {
		if why := s.w.setInitial(window, s.streams.all()); why != nil {
			s.fail(why)
			return
		}
	}
	s.w.ackSettings()
	if s.client {
		s.responses.OnSettings()
	}
}

// apply takes over one setting, but for the window, which receive does.
func (s *settings) apply(k setting, v uint32) *Error {
	switch k {
	case settingTableSize:
		s.w.setTable(int(v))
	case settingPush:
		if v > 1 || v == 1 && s.client {
			return ErrSettings
		}
	case settingMaxStreams:
		s.maxStreams = int(min(v, maxWindow))
	case settingInitialWindow:
		if v > maxWindow {
			return ErrWindowSize
		}
	case settingMaxFrame:
		if v < 16<<10 || v > 1<<24-1 {
			return ErrSettings
		}
	}
	return nil
}
