package stream

import (
	"crypto/rand"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/exchange"
)

const (
	// maxParked limits the parked responses. Above it Park refuses, and the other sidecar
	// receives the error response-too-large.
	maxParked = 1024

	// parkTime is how long a response stays parked. Once its head has arrived, it is fetched.
	parkTime = 5 * time.Second
)

// parked is the body of a response that waits to be fetched. It is not read meanwhile, so
// backpressure stops its sender.
type parked struct {
	srv   *Server
	src   *exchange.StreamSource
	bytes int // memory held
	timer *time.Timer
}

// Park implements downstream.Streams.
func (s *Server) Park(src *exchange.StreamSource) (token link.Token, ok bool) {
	_, _ = rand.Read(token[:]) // never fails
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.parked) >= maxParked {
		return link.Token{}, false
	}
	p := &parked{srv: s, src: src, bytes: protocol.Held(src.Buffer)}
	s.opt.Process.Hold(p.bytes)
	s.parked[token] = p
	p.timer = time.AfterFunc(s.park, func() {
		if expired := s.unpark(token); expired != nil {
			expired.discard()
		}
	})
	return token, true
}

// unpark removes and returns the body that is parked under the token, or nil.
func (s *Server) unpark(token link.Token) *parked {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.parked[token]
	delete(s.parked, token)
	return p
}

// take stops the timer and returns the source, which the caller owns.
func (p *parked) take() *exchange.StreamSource {
	p.timer.Stop()
	p.srv.opt.Process.Hold(-p.bytes)
	return p.src
}

func (p *parked) discard() { p.take().Close() }
