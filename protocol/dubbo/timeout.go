package dubbo

import (
	"strconv"
	"time"

	"github.com/remora-proxy/remora/protocol"
)

// Attachments that say how long the caller waits, in milliseconds. Providers apply the second
// to the calls that they make for this one.
const (
	attachmentTimeout   = "timeout"
	attachmentCountdown = "_TO"
)

// timeout is one of them in a body.
type timeout struct {
	time time.Duration // 0 means none
	text []byte        // the value: digits, or a number of hessian2; aliases the body
	pad  byte          // fills unused digits; 0 means a number of hessian2
}

// timeout returns where the attachment with this name is kept, or nil.
func (inv *Invocation) timeout(name []byte) *timeout {
	switch string(name) {
	case attachmentTimeout:
		return &inv.timeouts[0]
	case attachmentCountdown:
		return &inv.timeouts[1]
	}
	return nil
}

// SetTimeLeft parses the body of a request, and replaces the timeouts in it that are longer than
// left, in place: the length stays. A body that is no call stays as it is.
func (inv *Invocation) SetTimeLeft(serialization byte, body []byte, left time.Duration) {
	if inv.Parse(serialization, body) != nil {
		return
	}
	now := protocol.Milliseconds(left)
	for _, t := range inv.timeouts {
		switch before := t.time.Milliseconds(); {
		case before <= now:
		case t.pad == 0:
			subtract(t.text, before-now)
		default:
			rewrite(t.text, now, t.pad)
		}
	}
}

// subtract lowers a number of hessian2 to one that is not negative. All its forms are a constant
// plus the number, with the highest byte first.
func subtract(text []byte, n int64) {
	for i := len(text) - 1; n > 0; i-- {
		low := int64(text[i]) - n&0xff
		n >>= 8
		if low < 0 {
			n++
		}
		text[i] = byte(low)
	}
}

// rewrite replaces digits by those of n, which has no more.
func rewrite(text []byte, n int64, pad byte) {
	for i := len(text) - 1; i >= 0; i-- {
		text[i] = pad
		if n > 0 {
			text[i] = byte('0' + n%10)
		}
		n /= 10
	}
}

// SetTimeLeft makes the attachments of a parsed call say the time left.
func (c *Call) SetTimeLeft(left time.Duration) {
	start := len(c.scratch)
	c.scratch = strconv.AppendInt(c.scratch, protocol.Milliseconds(left), 10)
	text := c.scratch[start:len(c.scratch):len(c.scratch)]
	for _, name := range [...]string{attachmentTimeout, attachmentCountdown} {
		c.replace(name, text)
	}
}

// replace sets an attachment that the caller may have given, too.
func (c *Call) replace(name string, value []byte) {
	for i := range c.attachments {
		if string(c.attachments[i].name) == name {
			c.attachments[i].value = value
			return
		}
	}
	c.attachments = append(c.attachments, attachment{[]byte(name), value})
}
