package http2

// acks has our SETTINGS that the peer has not acknowledged. An acknowledgement says that the peer has read all frames
// before these SETTINGS. A barrier is an empty SETTINGS frame, sent for that alone.
type acks struct {
	*Conn
	early    int    // bytes beyond our window that a stream may receive until the peer has read our SETTINGS
	unacked  int    // SETTINGS that are not acknowledged
	barriers uint64 // which of these are barriers: bit 0 is the oldest
}

// sendSettings queues our SETTINGS.
func (a *acks) sendSettings() {
	first := settingValue{settingMaxStreams, a.opts.streams()}
	if a.client {
		first = settingValue{settingPush, 0}
	}
	a.w.settings(first, settingValue{settingInitialWindow, a.opts.window()}, settingValue{settingMaxHeader, a.opts.Limits.Header})
	a.unacked++
	a.early = max(0, defaultWindow-a.opts.window())
}

// settingsUnread reports whether the peer may not have read our SETTINGS.
func (a *acks) settingsUnread() bool { return a.unacked > 0 && a.barriers&1 == 0 }

// window returns the receive window of a new stream, in bytes.
func (a *acks) window() int { return a.opts.window() + a.early }

// barrier sends empty SETTINGS. It returns false if too many are not acknowledged.
func (a *acks) barrier() bool {
	if !a.usable() || a.unacked >= maxBarriers {
		return false
	}
	a.barriers |= 1 << a.unacked
	a.unacked++
	a.w.settings()
	return true
}

// receive handles SETTINGS with the flag ACK and the payload b.
func (a *acks) receive(b []byte) {
	switch {
	case len(b) > 0:
		a.fail(ErrFrameSize)
		return
	case a.unacked == 0:
		a.count(floodSettings) // of nothing
		return
	}
	if a.early > 0 { // the first ACK
		for _, st := range a.streams.all() {
			if st != nil {
				st.recv -= a.early
			}
		}
		a.early = 0
	}
	barrier := a.barriers&1 != 0
	a.barriers >>= 1
	if a.unacked--; barrier {
		a.responses.OnBarrier()
	}
}
