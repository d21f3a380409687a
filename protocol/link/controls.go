package link

import "encoding/binary"

// controls are the control frames that wait to leave. Each exported method queues a frame.
type controls struct {
	frames []byte
	latest latest
	closed bool // further frames are dropped
}

// latest are control frames of which only the latest counts: a peer can't make them accumulate.
type latest struct {
	credit           uint32
	ping, pong       uint64
	load             Load
	hasPing, hasPong bool
	hasLoad          bool
	answers          bool // load is the ANSWER to a PROBE
}

// clear drops all frames.
func (c *controls) clear() { c.frames, c.latest = c.frames[:0], latest{} }

func (c *controls) add(t frameType, flags uint8, id uint64, payload ...byte) {
	if !c.closed {
		c.frames = append(appendHeader(c.frames, uint8(t)|flags, id, len(payload)), payload...)
	}
}

// abort tells the peer that the rest of message id does not come.
func (c *controls) abort(id uint64) { c.add(frameData, flagAbort, id) }

// cancel asks the peer to cancel request id.
func (c *controls) cancel(id uint64) { c.add(frameCancel, 0, id) }

// CancelAck responds to a CANCEL. To keep a queued response from leaving, call Drop before.
func (c *controls) CancelAck(id uint64, d Dropped) { c.add(frameCancelAck, 0, id, byte(d)) }

// Refused ends request id without a response; why tells if the application may have seen it.
func (c *controls) Refused(id uint64, why Reason) { c.add(frameRefused, 0, id, byte(why)) }

// Start asks the acceptor, which has FeatureStarts, to tell when it starts request id: when it no longer waits for the
// application. The acceptor tells the dialer that by Start, too.
func (c *controls) Start(id uint64) { c.add(frameStart, 0, id) }

// Withdraw asks the acceptor, which has FeatureStarts, to refuse request id (NoSlot) if the request still waits for the
// application. All of the request was sent: see Writer.Unsent.
func (c *controls) Withdraw(id uint64) { c.add(frameWithdraw, 0, id) }

// GoAway announces that requests above last are not processed.
func (c *controls) GoAway(last uint64, why Reason) { c.add(frameGoAway, 0, last, byte(why)) }

// Probe asks an acceptor that has FeatureProbes for its load.
func (c *controls) Probe() { c.add(frameProbe, 0, 0) }

// Ping requests a Pong(n). Only the last unsent one is kept.
func (c *controls) Ping(n uint64) { c.latest.ping, c.latest.hasPing = n, true }

// Pong responds to a Ping. Only the last unsent one is kept.
func (c *controls) Pong(n uint64) { c.latest.pong, c.latest.hasPong = n, true }

// Credit grants n more bytes of DATA. Small grants leave with other frames: see Writer.Ready.
func (c *controls) Credit(n uint32) { c.latest.credit += n }

// Load reports the state of the service. Only the last unsent one is kept.
func (c *controls) Load(l Load) { c.latest.load, c.latest.hasLoad = l, true }

// Answer responds to PROBE. It takes the place of a Load that has not left, and only the last unsent load is kept.
func (c *controls) Answer(l Load) {
	c.Load(l)
	c.latest.answers = true
}

// Control returns the bytes of control frames held for sending. It is large only if a peer
// sends CANCEL and PING and does not read the responses.
func (c *controls) Control() int { return len(c.frames) }

// urgent reports whether a frame is worth a write. CREDIT is if it grants at least worth bytes.
func (c *controls) urgent(worth uint32) bool {
	l := &c.latest
	return len(c.frames) > 0 || l.hasPing || l.hasPong || l.hasLoad || l.credit >= worth
}

// take appends all frames to dst.
func (c *controls) take(dst []byte) []byte {
	dst = append(dst, c.frames...)
	c.frames = emptied(c.frames)
	return c.latest.take(dst)
}

func emptied(b []byte) []byte {
	if cap(b) > keepBuffer {
		return nil
	}
	return b[:0]
}

func (l *latest) take(dst []byte) []byte {
	if l.credit > 0 {
		dst = appendHeader(dst, uint8(frameCredit), 0, varintLen(uint64(l.credit)))
		dst = binary.AppendUvarint(dst, uint64(l.credit))
	}
	if l.hasPing {
		dst = appendHeader(dst, uint8(framePing), l.ping, 0)
	}
	if l.hasPong {
		dst = appendHeader(dst, uint8(framePong), l.pong, 0)
	}
	if l.hasLoad {
		t := frameLoad
		if l.answers {
			t = frameAnswer
		}
		dst = appendLoad(dst, t, l.load)
	}
	*l = latest{}
	return dst
}
