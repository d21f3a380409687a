package stream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/remora-proxy/remora/proxy"
	"github.com/remora-proxy/remora/proxy/config"
)

// Options configure a Server. All fields are needed.
type Options struct {
	Config  *config.Config
	Process *proxy.Process

	// Dial connects to an endpoint ("ip:port") of a service, with TLS where the
	// service has it. The Socket rests on a TCP connection, see proxy.Socket.
	Dial func(ctx context.Context, addr, service string) (proxy.Socket, error)

	// Room gives a listener what takes one of limits.connections, of
	// limits.per_source and of its own max (0: none) for a connection that was
	// accepted from remote, and returns what gives it back, or nil if there is
	// none left. Any goroutine calls these.
	Room func(max int) (reserve func(remote net.Addr) (release func()))

	Logger *slog.Logger
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

	mu        sync.Mutex
	closed    bool
	open      map[*tunnel]struct{}
	listeners map[*Listener]struct{}
	all       sync.WaitGroup // goroutines of listeners and tunnels
}

// New makes a Server. Close ends it.
func New(o Options) *Server {
	s := &Server{
		opt: o, flush: flushTime, open: make(map[*tunnel]struct{}), listeners: make(map[*Listener]struct{}),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Listen opens a listener with protocol tcp.
func (s *Server) Listen(c *config.Listener) (*Listener, error) {
	var lc net.ListenConfig
	lc.SetMultipathTCP(false) // splice and the shorter path are plain TCP's
	ln, err := lc.Listen(s.ctx, "tcp", c.Address)
	if err != nil {
		return nil, fmt.Errorf("stream: %w", err)
	}
	l := &Listener{srv: s, ln: ln, cfg: c, reserve: s.opt.Room(c.Connections), done: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errors.Join(ErrClosed, ln.Close())
	}
	s.listeners[l] = struct{}{}
	s.all.Go(l.run)
	return l, nil
}

// start begins t, or tells that it is too late.
func (s *Server) start(t *tunnel) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.open[t] = struct{}{}
	s.all.Go(t.run)
	return true
}

func (s *Server) ended(t *tunnel) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, t)
}

// Open is the number of streams that are open or being connected.
func (s *Server) Open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)
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
	for t := range s.open {
		t.cut()
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

// sleep waits for d, or until the Server is closed.
func (s *Server) sleep(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-s.ctx.Done():
	}
}
