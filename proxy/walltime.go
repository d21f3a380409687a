package proxy

import "time"

// httpDate is the format of Date (RFC 9110 section 5.6.7), and dateLen its
// length.
const (
	httpDate = "Mon, 02 Jan 2006 15:04:05 GMT"
	dateLen  = len(httpDate)
)

// dateCache is the time of day as messages carry it, worked out once a second.
type dateCache struct {
	text  [dateLen]byte
	until time.Duration // on the loop's clock
}

// dateValue is the value of Date for a message of this moment, or nil when the
// process has no clock. It is valid until the callback returns.
func (s *shard) dateValue() []byte {
	if s.shared.wall == nil {
		return nil
	}
	t := &s.date
	if now := s.loop.Now(); now >= t.until {
		wall := s.shared.wall().UTC()
		t.until = now + time.Second - time.Duration(wall.Nanosecond())
		wall.AppendFormat(t.text[:0], httpDate)
	}
	return t.text[:]
}
