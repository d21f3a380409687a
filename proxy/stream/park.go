package stream

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"sync"
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

// parkingLot has the bodies of responses that wait until another sidecar fetches them. As many may be parked
// as there may be streams, and they are shared like those. A body leaves the lot once: to the sidecar that fetches
// it, maybe through the process that replaces this one, or after parkTime, or at close. What the previous process
// has parked is fetched there.
//
// The methods of a parkingLot may be called from any goroutine.
type parkingLot struct {
	srv    *Server
	places *fair.Table
	expiry time.Duration // parkTime, except in tests

	mu       sync.Mutex
	closed   bool
	bodies   map[link.Token]*parked
	fetches  net.Listener // the process that replaces this one fetches here; nil until listen is called
	previous string       // Options.Previous until ForgetPrevious
}

// Park implements downstream.Streams.
func (s *Server) Park(src *race.StreamSource, from shard.Client) (token link.Token, ok bool) {
	return s.parking.park(src, from)
}

// Parked returns the number of responses that wait until another sidecar fetches them.
func (s *Server) Parked() int { return s.parking.count() }

// Parking returns a loopback address, or ErrClosed. The process that replaces this one fetches
// responses that are parked here, by their token, from that address until Close.
func (s *Server) Parking() (addr string, err error) { return s.parking.listen() }

// ForgetPrevious forgets the address of the previous process, which has ended. Another process
// may listen there later, and must not be sent tokens.
func (s *Server) ForgetPrevious() { s.parking.forgetPrevious() }

func newParkingLot(s *Server, previous string) *parkingLot {
	return &parkingLot{
		srv: s, places: fair.NewTable(0), expiry: parkTime, bodies: make(map[link.Token]*parked), previous: previous,
	}
}

// parked is the body of a response in a parkingLot. It is not read meanwhile, so
// backpressure stops its sender.
type parked struct {
	lot    *parkingLot
	src    *race.StreamSource
	bytes  int // memory held
	source share.Source
	place  *fair.Place
	timer  *time.Timer
}

func (l *parkingLot) park(src *race.StreamSource, from shard.Client) (token link.Token, ok bool) {
	_, _ = rand.Read(token[:]) // never fails
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return link.Token{}, false
	}
	p := &parked{lot: l, src: src, bytes: protocol.Held(src.Buffer), source: from.Source()}
	p.timer = time.AfterFunc(l.expiry, func() {
		if expired := l.remove(token); expired != nil {
			expired.discard()
		}
	})
	l.places.Resize(l.srv.config().Limits.Streams)
	if p.place = l.places.Take(p.source, func() { p.timer.Reset(0) }); p.place == nil {
		p.timer.Stop()
		return link.Token{}, false
	}
	l.srv.opt.Process.Charge(p.bytes)
	l.bodies[token] = p
	return token, true
}

// remove removes and returns the body that is parked under the token, or nil.
func (l *parkingLot) remove(token link.Token) *parked {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.bodies[token]
	delete(l.bodies, token)
	return p
}

func (l *parkingLot) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.bodies)
}

// close discards the bodies, and ends the fetching and the parking.
func (l *parkingLot) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.fetches != nil {
		_ = l.fetches.Close()
	}
	for token, p := range l.bodies {
		delete(l.bodies, token)
		p.discard()
	}
}

// take stops the timer, leaves the place and returns the source, which the caller owns.
func (p *parked) take() *race.StreamSource {
	p.timer.Stop()
	p.place.Release()
	p.lot.srv.opt.Process.Charge(-p.bytes)
	return p.src
}

func (p *parked) discard() { p.take().Close() }

// serve sends to p.down the parked body of the token, as link.StreamAnswer says. The previous
// process may have parked it. A token that is unknown or has expired is refused with a reason.
func (l *parkingLot) serve(p *pair, token link.Token) {
	parked := l.remove(token)
	if parked == nil {
		l.srv.start(p, func() { l.serveFromPrevious(p, token) })
		return
	}
	p.behind = parked.source.Client
	src := parked.take()
	l.srv.startResponse(&responseStream{pair: p, head: []byte{link.StreamTaken}, chunks: !src.Body.HasLength(), fetched: true, src: src})
}

const (
	// fetchTimeout limits connecting to the previous process, and its wait for the token.
	fetchTimeout = 5 * time.Second

	maxFetches = 64 // connections that have not sent their token yet
)

var errNoPrevious = errors.New("stream: no previous process")

// listen returns the address from which the process that replaces this one fetches, see Server.Parking.
func (l *parkingLot) listen() (addr string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return "", ErrClosed
	}
	if l.fetches == nil {
		if l.fetches, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			return "", err
		}
		l.srv.all.Go(l.acceptFetches)
	}
	return l.fetches.Addr().String(), nil
}

// acceptFetches accepts the fetches of the process that replaces this one, until close.
func (l *parkingLot) acceptFetches() {
	waiting := make(chan struct{}, maxFetches)
	for {
		nc, err := l.fetches.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			l.srv.sleep(kernel.MaxBackoff)
			continue
		}
		down := &end{conn: nc.(*net.TCPConn), tcp: nc.(*net.TCPConn)}
		select {
		case waiting <- struct{}{}:
			l.srv.all.Go(func() {
				defer func() { <-waiting }()
				p := &pair{srv: l.srv, down: down}
				p.guard(func() { l.serveFetch(p) })
			})
		default:
			down.reset()
		}
	}
}

// serveFetch reads a token from p.down and sends the response that is parked under it.
func (l *parkingLot) serveFetch(p *pair) {
	stop := context.AfterFunc(l.srv.ctx, p.down.reset)
	var token link.Token
	_ = p.down.SetReadDeadline(time.Now().Add(fetchTimeout))
	if _, err := io.ReadFull(p.down, token[:]); err != nil || !stop() {
		p.down.reset()
		return
	}
	_ = p.down.SetReadDeadline(time.Time{})
	l.serve(p, token)
}

func (l *parkingLot) forgetPrevious() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.previous = ""
}

// serveFromPrevious passes to p.down what the previous process may have parked under the token.
func (l *parkingLot) serveFromPrevious(p *pair, token link.Token) {
	if p.why.Load() != nil {
		p.refuse([]byte{byte(link.Overload)})
		return
	}
	if err := l.dialPrevious(p); err != nil {
		p.refuse([]byte{byte(link.DeadlinePassed)})
		return
	}
	early := newInput(l.srv.opt.Process, token[:]) // the previous process reads the token first
	defer early.free()
	(&relay{p: p}).run(early)
}

func (l *parkingLot) dialPrevious(p *pair) error {
	l.mu.Lock()
	previous := l.previous
	l.mu.Unlock()
	if previous == "" {
		return errNoPrevious
	}
	ctx, cancel := context.WithTimeout(l.srv.ctx, fetchTimeout)
	defer cancel()
	var d net.Dialer
	nc, err := d.DialContext(ctx, "tcp", previous)
	if err != nil {
		return err
	}
	return p.attachUp(&end{conn: nc.(*net.TCPConn), tcp: nc.(*net.TCPConn)}, endpointID{})
}
