package proxy

import "time"

// httpDate is the format of Date (RFC 9110 section 5.6.7), and dateLen its
// length.
const (
	httpDate = "Mon, 02 Jan 2006 15:04:05 GMT"
	dateLen  = len(httpDate)
)

// wallTime is the time of day as messages carry it, worked out once a second.
type wallTime struct {
	text  [dateLen]byte
	until time.Duration // on the loop's clock
}

// date is the value of Date for a message of this moment, or nil when the
// process has no clock. It is valid until the callback returns.
func (w *Worker) date() []byte {
	if w.proc.Wall == nil {
		return nil
	}
	t := &w.wall
	if now := w.loop.Now(); now >= t.until {
		wall := w.proc.Wall().UTC()
		t.until = now + time.Second - time.Duration(wall.Nanosecond())
		wall.AppendFormat(t.text[:0], httpDate)
	}
	return t.text[:]
}
