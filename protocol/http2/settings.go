package http2

import "encoding/binary"

// settings handles a SETTINGS frame (RFC 9113 section 6.5).
func (c *Conn) settings(f frame, b []byte) {
	switch {
	case f.id != 0:
		c.fail(ErrStreamID)
		return
	case f.has(flagAck):
		c.acks.receive(b)
		return
	case len(b)%settingLen != 0:
		c.fail(ErrFrameSize)
		return
	}
	kind := floodSettings
	if len(b) == 0 { // a barrier, as our own clients send them
		kind = floodOthers
	}
	if c.count(kind); !c.usable() {
		return
	}
	if c.state == connSettings {
		c.become(connOpen)
	}
	window := c.w.initial
	for ; len(b) > 0; b = b[settingLen:] {
		s, v := setting(binary.BigEndian.Uint16(b)), binary.BigEndian.Uint32(b[2:])
		if why := c.setting(s, v); why != nil {
			c.fail(why)
			return
		}
		if s == settingInitialWindow {
			window = int(v)
		}
	}
	// Once, as it visits all streams.
	if why := c.w.setInitial(window, c.streams.slots); why != nil {
		c.fail(why)
		return
	}
	c.w.out = appendFrame(c.w.out, 0, frameSettings, flagAck, 0)
	c.w.control += frameHead
	if c.client {
		c.responses.OnSettings()
	}
}

func (c *Conn) setting(s setting, v uint32) *Error {
	switch s {
	case settingTableSize:
		c.w.enc.SetMax(int(v))
	case settingPush:
		if v > 1 || v == 1 && c.client {
			return ErrSettings
		}
	case settingMaxStreams:
		c.peerStreams = int(min(v, maxWindow))
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
