package shard

import "time"

// httpDate is the format of the Date header (RFC 9110 section 5.6.7).
const httpDate = "Mon, 02 Jan 2006 15:04:05 GMT"

// DateLen is the length of a Date header's value in bytes.
const DateLen = len(httpDate)

// dateCache is the value of the Date header, formatted once a second.
type dateCache struct {
	text  [DateLen]byte
	until time.Duration // on the loop's clock
}

// DateValue returns the current value of the Date header, or nil if the process has no
// clock. It is valid until the callback returns.
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
