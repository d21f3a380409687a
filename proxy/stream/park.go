package stream

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/fair"
	"github.com/remora-proxy/remora/proxy/fair/share"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/reactor/kernel"
	"github.com/remora-proxy/remora/proxy/shard"
)

// parkTime is how long a response stays parked. Once its head has arrived, it is fetched.
const parkTime = 5 * time.Second

// parked is the body of a response that waits to be fetched. It is not read meanwhile, so
// backpressure stops its sender.
type parked struct {
	srv    *Server
	src    *race.StreamSource
	bytes  int // memory held
	source share.Source
	place  *fair.Place
	timer  *time.Timer
}

// Park implements downstream.Streams. As many responses are parked as there may be streams, and they are
// shared like those.
func (s *Server) Park(src *race.StreamSource, from shard.Client) (token link.Token, ok bool) {
	_, _ = rand.Read(token[:]) // never fails
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return link.Token{}, false
	}
	p := &parked{srv: s, src: src, bytes: protocol.Held(src.Buffer), source: from.Source()}
	p.timer = time.AfterFunc(s.park, func() {
		if expired := s.unpark(token); expired != nil {
			expired.discard()
		}
	})
	s.parkPlaces.Resize(s.config().Limits.Streams)
	if p.place = s.parkPlaces.Take(p.source, func() { p.timer.Reset(0) }); p.place == nil {
		p.timer.Stop()
		return link.Token{}, false
	}
	s.opt.Process.Charge(p.bytes)
	s.parked[token] = p
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

// take stops the timer, leaves the place and returns the source, which the caller owns.
func (p *parked) take() *race.StreamSource {
	p.timer.Stop()
	p.place.Release()
	p.srv.opt.Process.Charge(-p.bytes)
	return p.src
}

func (p *parked) discard() { p.take().Close() }

// serveParked sends the parked body of the token, as link.StreamAnswer says. The previous
// process may have parked it. A token that is unknown or has expired is refused with a reason.
func (s *Server) serveParked(p *pair, token link.Token) {
	parked := s.unpark(token)
	if parked == nil {
		s.start(p, func() { p.fetchFromPrevious(token) })
		return
	}
	p.behind = parked.source.Client
	src := parked.take()
	s.startResponse(&responseStream{pair: p, head: []byte{link.StreamTaken}, chunks: !src.Body.HasLength(), fetched: true, src: src})
}

const (
	// fetchTimeout limits connecting to the previous process, and its wait for the token.
	fetchTimeout = 5 * time.Second

	maxFetches = 64 // connections that have not sent their token yet
)

var errNoPrevious = errors.New("stream: no previous process")

// Parking returns a loopback address, or ErrClosed. The process that replaces this one fetches
// responses that are parked here, by their token, from that address until Close.
func (s *Server) Parking() (addr string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return "", ErrClosed
	}
	if s.parking == nil {
		if s.parking, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			return "", err
		}
		s.all.Go(s.acceptFetches)
	}
	return s.parking.Addr().String(), nil
}

func (s *Server) acceptFetches() {
	waiting := make(chan struct{}, maxFetches)
	for {
		nc, err := s.parking.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			s.sleep(kernel.MaxBackoff)
			continue
		}
		down := &end{conn: nc.(*net.TCPConn), tcp: nc.(*net.TCPConn)}
		select {
		case waiting <- struct{}{}:
			s.all.Go(func() { s.serveFetch(down); <-waiting })
		default:
			down.reset()
		}
	}
}

// serveFetch reads a token from down and sends the response that is parked under it.
func (s *Server) serveFetch(down *end) {
	stop := context.AfterFunc(s.ctx, down.reset)
	var token link.Token
	_ = down.SetReadDeadline(time.Now().Add(fetchTimeout))
	if _, err := io.ReadFull(down, token[:]); err != nil || !stop() {
		down.reset()
		return
	}
	_ = down.SetReadDeadline(time.Time{})
	s.serveParked(&pair{srv: s, down: down}, token)
}

// ForgetPrevious forgets the address of the previous process, which has ended. Another process
// may listen there later, and must not be sent tokens.
func (s *Server) ForgetPrevious() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.previous = ""
}

// fetchFromPrevious passes to down what the previous process may have parked under the token.
func (p *pair) fetchFromPrevious(token link.Token) {
	if p.why.Load() != nil {
		p.refuse([]byte{byte(link.Overload)})
		return
	}
	if err := p.dialPrevious(); err != nil {
		p.refuse([]byte{byte(link.DeadlinePassed)})
		return
	}
	(&relay{p: p}).run(newInput(p.srv.opt.Process, token[:])) // the previous process reads the token first
}

func (p *pair) dialPrevious() error {
	p.srv.mu.Lock()
	previous := p.srv.previous
	p.srv.mu.Unlock()
	if previous == "" {
		return errNoPrevious
	}
	ctx, cancel := context.WithTimeout(p.srv.ctx, fetchTimeout)
	defer cancel()
	var d net.Dialer
	nc, err := d.DialContext(ctx, "tcp", previous)
	if err != nil {
		return err
	}
	return p.attachUp(&end{conn: nc.(*net.TCPConn), tcp: nc.(*net.TCPConn)}, endpointID{})
}
