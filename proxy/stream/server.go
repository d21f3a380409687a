package stream

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/loop"
)

// Options configure a Server. All fields but Before are needed.
type Options struct {
	Process *proxy.Process

	// Dial connects to an endpoint ("ip:port") of a service, with TLS where the
	// service has it. The Socket rests on a TCP connection, see loop.Socket.
	Dial func(ctx context.Context, addr, service string) (loop.Socket, error)

	// Room gives a listener what takes one of limits.connections, of
	// limits.per_source and of its own max (0: none) for a connection that was
	// accepted from remote, and returns what gives it back, or nil if there is
	// none left. Any goroutine calls these.
	Room func(max int) (reserve func(remote net.Addr) (release func()))

	Logger *slog.Logger

	// Before is Parking of the process whose place this one has taken, until
	// Forget. Empty: there is none.
	Before string
}

// ErrClosed is returned by a Server that was closed.
var ErrClosed = errors.New("stream: closed")

// Server carries streams. Its methods may be called from any goroutine.
type Server struct {
	opt    Options
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	next   atomic.Uint32 // the worker whose turn it is to pick
	flush  time.Duration // flushTime
	park   time.Duration // parkTime
	hops   hopSet        // of passages

	mu        sync.Mutex
	closed    bool
	open      map[*pair]struct{}
	parked    map[link.Token]*parked
	listeners map[*Listener]struct{}
	parking   net.Listener   // nil: nobody is to come yet
	before    string         // Options.Before, until Forget
	all       sync.WaitGroup // goroutines of listeners and streams
}

// New makes a Server. Close ends it.
func New(o Options) *Server {
	s := &Server{
		opt: o, before: o.Before, flush: flushTime, park: parkTime, open: make(map[*pair]struct{}),
		parked: make(map[link.Token]*parked), listeners: make(map[*Listener]struct{}),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Serve serves a listener with protocol tcp on ln, a socket without multipath TCP:
// splice and the shorter path are plain TCP's. ln becomes the Listener's, or is
// closed with an error.
func (s *Server) Serve(ln net.Listener, c *config.Listener) (*Listener, error) {
	l := &Listener{srv: s, ln: ln, reserve: s.opt.Room(c.Connections), done: make(chan struct{})}
	l.Configure(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errors.Join(ErrClosed, ln.Close())
	}
	s.listeners[l] = struct{}{}
	s.all.Go(l.run)
	return l, nil
}

// start has run carry the stream of p, or cuts it and tells that it is too late.
func (s *Server) start(p *pair, run func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		p.cut()
		return false
	}
	s.open[p] = struct{}{}
	s.all.Go(func() {
		defer s.ended(p)
		run()
	})
	return true
}

func (s *Server) ended(p *pair) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, p)
}

// Open is the number of streams that are open, being connected, or parked.
func (s *Server) Open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open) + len(s.parked)
}

// Parked is the number of answers that wait for another sidecar to fetch them.
func (s *Server) Parked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.parked)
}

// worker takes turns: streams are few and long, and a pick is short.
func (s *Server) worker() *proxy.Worker {
	all := s.opt.Process.Workers()
	return all[int(s.next.Add(1))%len(all)]
}

// Close closes the listeners and cuts the streams, each with a reset at both
// ends so that none looks complete, and returns when all goroutines have ended,
// or with ctx's error.
func (s *Server) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	for l := range s.listeners {
		_ = l.ln.Close()
	}
	if s.parking != nil {
		_ = s.parking.Close()
	}
	for p := range s.open {
		p.cut()
	}
	for token, p := range s.parked {
		delete(s.parked, token)
		p.abandon()
	}
	s.mu.Unlock()
	s.cancel()
	done := make(chan struct{})
	go func() { s.all.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// opaque is the wish for an endpoint of the service that takes any bytes.
func (s *Server) opaque(l exchange.Leaser, service string, timeout time.Duration) wish {
	return wish{leaser: l, service: service, kind: link.StreamOpaque, timeout: timeout}
}

// config is the configuration in use.
func (s *Server) config() *config.Config { return s.opt.Process.Config() }

// service is what the configuration says of a service; of one that it has no
// more, and that streams still lead to, what it says of any.
func (s *Server) service(name string) *config.Service {
	if c := s.config().Services[name]; c != nil {
		return c
	}
	return config.DefaultService(name)
}

// limits are those of messages whose bodies are passed on.
func (s *Server) limits() *protocol.Limits {
	lim := &s.config().Limits
	return &protocol.Limits{Header: int(lim.Header), Headers: lim.Headers, Message: protocol.NoLimit}
}

// sleep waits for d, or until the Server is closed.
func (s *Server) sleep(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-s.ctx.Done():
	}
}
