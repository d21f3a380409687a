package shard

import "time"

// httpDate is the format of Date (RFC 9110 section 5.6.7), and DateLen its
// length.
const (
	httpDate = "Mon, 02 Jan 2006 15:04:05 GMT"
	DateLen  = len(httpDate)
)

// dateCache is the time of day as messages carry it, worked out once a second.
type dateCache struct {
	text  [DateLen]byte
	until time.Duration // on the loop's clock
}

// DateValue is the value of Date for a message of this moment, or nil when the
// process has no clock. It is valid until the callback returns.
func (s *Shard) DateValue() []byte {
	if s.Process.WallClock == nil {
		return nil
	}
	t := &s.date
	if now := s.Loop.Now(); now >= t.until {
		wall := s.Process.WallClock().UTC()
		t.until = now + time.Second - time.Duration(wall.Nanosecond())
		wall.AppendFormat(t.text[:0], httpDate)
	}
	return t.text[:]
}
