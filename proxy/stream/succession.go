package stream

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	"github.com/remora-proxy/remora/protocol/link"
)

const (
	// fetchTimeout bounds how long a process takes to come to the one before, and to
	// say what it comes for.
	fetchTimeout = 5 * time.Second

	// maxFetches bounds the connections on which nobody has said so yet.
	maxFetches = 64
)

// errNoneBefore is why there is nothing to fetch.
var errNoneBefore = errors.New("stream: no process before this one")

// Parking is where a process that takes the place of this one fetches what is parked
// here, for the sidecars that come to it: an address on loopback, open until Close.
// Nothing but a token admits there.
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
		s.all.Go(s.attend)
	}
	return s.parking.Addr().String(), nil
}

// attend accepts at Parking until it is closed.
func (s *Server) attend() {
	waiting := make(chan struct{}, maxFetches)
	for {
		nc, err := s.parking.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			s.sleep(maxBackoff)
			continue
		}
		down := &end{conn: nc.(*net.TCPConn), tcp: nc.(*net.TCPConn)}
		select {
		case waiting <- struct{}{}:
			s.all.Go(func() { s.admit(down); <-waiting })
		default:
			down.reset()
		}
	}
}

// admit hands over what down has the token of.
func (s *Server) admit(down *end) {
	unless := context.AfterFunc(s.ctx, down.reset)
	var token link.Token
	_ = down.SetReadDeadline(time.Now().Add(fetchTimeout))
	if _, err := io.ReadFull(down, token[:]); err != nil || !unless() {
		down.reset()
		return
	}
	_ = down.SetReadDeadline(time.Time{})
	s.handOver(&pair{srv: s, down: down}, token)
}

// Forget tells that the process before has ended. Whoever comes with a token that is
// not known here would be led to whatever listens at that address next.
func (s *Server) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = ""
}

func (s *Server) processBefore() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.before
}

// fetchBefore passes on to down what the process before may have parked.
func (p *pair) fetchBefore(token link.Token) {
	if err := p.dialBefore(); err != nil {
		p.refuse([]byte{byte(link.DeadlinePassed)})
		return
	}
	watch := p.watch()
	defer watch.stop()
	p.relay(p.srv.early(token[:]))
}

func (p *pair) dialBefore() error {
	before := p.srv.processBefore()
	if before == "" {
		return errNoneBefore
	}
	ctx, cancel := context.WithTimeout(p.srv.ctx, fetchTimeout)
	defer cancel()
	var d net.Dialer
	nc, err := d.DialContext(ctx, "tcp", before)
	if err != nil {
		return err
	}
	return p.join(&end{conn: nc.(*net.TCPConn), tcp: nc.(*net.TCPConn)})
}
