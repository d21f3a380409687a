package stream

import (
	"crypto/rand"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/exchange"
)

const (
	// maxParked bounds the answers that wait to be fetched; past it Park refuses,
	// and the other sidecar is told that the answer is too long.
	maxParked = 1024

	// parkTime is how long one waits: the other sidecar comes as soon as it has
	// the head.
	parkTime = 5 * time.Second
)

// parked is an answer's body that waits to be fetched. Nothing of it is read
// meanwhile, so that its sender waits too.
type parked struct {
	srv   *Server
	src   *exchange.StreamSource
	bytes int // that are held
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
		if late := s.fetch(token); late != nil {
			late.abandon()
		}
	})
	return token, true
}

// fetch gives out what the token stands for, once; nil if there is nothing.
func (s *Server) fetch(token link.Token) *parked {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.parked[token]
	delete(s.parked, token)
	return p
}

// taken ends the waiting of what fetch gave out.
func (p *parked) taken() *exchange.StreamSource {
	p.timer.Stop()
	p.srv.opt.Process.Hold(-p.bytes)
	return p.src
}

// abandon gives the body up: nobody comes for it.
func (p *parked) abandon() {
	p.timer.Stop()
	p.srv.opt.Process.Hold(-p.bytes)
	p.src.Close()
}
