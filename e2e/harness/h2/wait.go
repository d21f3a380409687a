package h2

import (
	"errors"
	"fmt"
)

// UntilAnswer waits for a response of the application.
func (p *Peer) UntilAnswer(id uint32, body string) error {
	var bad error
	err := p.Until("a response", func(h *Heard) bool {
		s := h.Streams[id]
		if s == nil || !s.Ended && !s.Reset {
			return false
		}
		if s.Reset || s.Field(":status") != "200" || string(s.Body) != body {
			bad = fmt.Errorf("not the response %q: %s", body, h)
		}
		return true
	})
	return errors.Join(err, bad)
}

// UntilOver waits for the end of a stream.
func (p *Peer) UntilOver(id uint32) error {
	return p.Until("the end of a response", func(h *Heard) bool {
		s := h.Streams[id]
		return s != nil && (s.Ended || s.Reset)
	})
}

// UntilBody waits for a whole response with status 200 and so many bytes.
func (p *Peer) UntilBody(id uint32, n int) error {
	var bad error
	err := p.Until("the response", func(h *Heard) bool {
		s := h.Streams[id]
		if s == nil || !s.Ended && !s.Reset {
			return false
		}
		if s.Reset || s.Field(":status") != "200" || s.Length != n {
			bad = fmt.Errorf("stream %d: want status 200 and %d bytes: %s", id, n, h)
		}
		return true
	})
	if err == nil {
		err = bad
	}
	return err
}
