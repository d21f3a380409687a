package stream

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/remora-proxy/remora/internal/panics"
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/fair"
	"github.com/remora-proxy/remora/proxy/fair/share"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/stream/pipe"
)

// Options configure a Server. All fields except Previous are required.
type Options struct {
	Process *proxy.Process

	// Dial connects to an endpoint ("ip:port" or a Unix socket) of the service with a key, with TLS
	// if that has it. The key "" means no service. name is the one that the endpoint must prove, or
	// "". Dial sends first before anything else, in plain text. The Socket must be a connection of the system or TLS on one,
	// see loop.Socket.
	Dial func(ctx context.Context, addr, key, name string, first []byte) (loop.Socket, error)

	// Reserver returns the function with which a listener reserves a connection that it
	// accepted at local from remote (nil means unknown), under limits.connections, limits.per_source
	// and its own max (0 means no limit). That function returns nil if a limit is reached, otherwise a release
	// function. All three may be called from any goroutine.
	Reserver func(max int) (reserve func(local, remote net.Addr) (release func()))

	Logger *slog.Logger
	Panics *panics.Counter // counts those on the goroutines of streams

	// Previous is the Parking address of the process that this one has replaced, used until
	// ForgetPrevious. Empty means that there is no such process.
	Previous string
}

// ErrClosed reports that the Server was closed.
var ErrClosed = errors.New("stream: closed")

// Server starts the streams, each on goroutines of its own, gives them places, and ends them. Its methods may be
// called from any goroutine.
type Server struct {
	opt        Options
	ctx        context.Context // cancelled by Close
	cancel     context.CancelFunc
	places     *fair.Table   // limits.streams
	headPlaces *fair.Table   // of streams whose head another sidecar still sends, as many
	next       atomic.Uint32 // counts the picks, for round robin over the workers
	flush      time.Duration // flushTime, except in tests
	window     time.Duration // paceWindow, except in tests

	parking *parkingLot   // responses that wait
	down    downEndpoints // endpoints that get no stream
	hops    hops          // connections that must not lead back here
	blind   sync.Once     // logs that the addresses of this host are not known

	mu        sync.Mutex
	closed    bool
	open      map[*pair]struct{}
	listeners map[*Listener]struct{}
	all       sync.WaitGroup // goroutines of listeners and streams
}

// New returns a Server. The caller must Close it.
func New(o Options) *Server {
	s := &Server{
		opt: o, flush: flushTime, window: paceWindow, places: fair.NewTable(0), headPlaces: fair.NewTable(0),
		open: make(map[*pair]struct{}), listeners: make(map[*Listener]struct{}),
	}
	s.parking = newParkingLot(s, o.Previous)
	s.headPlaces.Turnover = true // a sidecar sends the head at once
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Serve accepts connections of a tcp listener on ln, the socket at its address, and on those at parts
// of that address. They must not use multipath TCP, since splice needs plain TCP. Serve owns
// the sockets: it closes them when it returns an error, which is ErrClosed after Close.
func (s *Server) Serve(ln net.Listener, c *config.Listener, also ...net.Listener) (*Listener, error) {
	l := &Listener{srv: s, sockets: append([]net.Listener{ln}, also...), reserve: s.opt.Reserver(c.Connections)}
	l.Configure(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errors.Join(ErrClosed, l.closeSockets())
	}
	s.listeners[l] = struct{}{}
	for _, ln := range l.sockets {
		l.accepting.Add(1)
		s.all.Go(func() { defer l.accepting.Done(); l.run(ln) })
	}
	return l, nil
}

// NewPipe implements downstream.Streams.
func (s *Server) NewPipe(l loop.Loop, remote string, ready func()) (loop.Pipe, loop.Socket) {
	return pipe.New(s.ctx, s.opt.Process, l, remote, ready)
}

// newPair returns the pair of a stream whose client is at the Socket. If the Socket has no end, it
// closes it and returns nil.
func (s *Server) newPair(client loop.Socket) *pair {
	down := endOf(client)
	if down == nil {
		_ = client.Close()
		return nil
	}
	p := &pair{srv: s, down: down}
	if down.pipe != nil {
		down.pipe.OnLost(p.onLeft) // at once, even while nothing is read
	}
	return p
}

// newClientPair is newPair for the client of a listener, and no other sidecar. Its output may end before it has
// a response. A pipe has no such end: the loop closes it when the client has left.
func (s *Server) newClientPair(client loop.Socket) *pair {
	p := s.newPair(client)
	if p != nil && p.down.pipe == nil {
		p.halfClose = s.config().Timeouts.HalfClose
	}
	return p
}

// start calls run, which carries the stream of p, on a new goroutine, with a place of limits.streams. If no place is
// left, p.why is set, and run must refuse the stream. After Close start aborts the stream and returns false.
func (s *Server) start(p *pair, run func()) bool { return s.startIn(s.places, p, run) }

// startIn is start with a place of another table.
func (s *Server) startIn(places *fair.Table, p *pair, run func()) bool {
	p.takePlace(places)
	p.watch = watchOf(p)
	giveBack := func() {
		p.watch.stop()
		p.place.Release()
		if f := p.why.Load(); f != nil {
			if p.opener == nil { // a body that another sidecar fetches
				p.opener = s.worker()
			}
			p.opener.Failed(f)
		}
	}
	if s.launch(p, func() { defer giveBack(); run() }) {
		return true
	}
	giveBack()
	return false
}

// takePlace gives the stream a place of a table, in exchange for the place that it has. If none is left it sets p.why.
func (p *pair) takePlace(places *fair.Table) {
	p.place.Release()
	source := share.Source{Peer: fair.SourceOf(p.down.RemoteAddr()), Client: p.behind}
	places.Resize(p.srv.config().Limits.Streams)
	if p.place = places.Take(source, func() { p.cut(fault.TooManyStreams) }); p.place == nil {
		p.why.CompareAndSwap(nil, fault.TooManyStreams)
	}
}

// launch is start without a place and without limits of time.
func (s *Server) launch(p *pair, run func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		p.abort()
		return false
	}
	s.open[p] = struct{}{}
	s.all.Go(func() {
		defer s.onEnded(p)
		p.guard(run)
	})
	return true
}

// guard calls run, a part of the stream on its goroutine, and aborts the stream if run panics.
func (p *pair) guard(run func()) {
	if p.srv.opt.Panics.Guard(func() error { run(); return nil }) != nil {
		p.abort()
	}
}

func (s *Server) onEnded(p *pair) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, p)
}

// Places returns how many places of limits.streams are taken, and how many there are.
func (s *Server) Places() (taken, max int) { return s.places.Taken(), s.config().Limits.Streams }

// Open returns the number of streams that are open, being connected, or parked.
func (s *Server) Open() int {
	s.mu.Lock()
	open := len(s.open)
	s.mu.Unlock()
	return open + s.Parked()
}

// worker returns the workers in turn. Streams are few and long, and a pick is short, so the
// load of the loops does not matter.
func (s *Server) worker() *proxy.Worker {
	all := s.opt.Process.Workers()
	return all[int(s.next.Add(1))%len(all)]
}

// Close closes the listeners and aborts the streams. Both ends of a stream are reset, so that
// none looks complete. Close returns when all goroutines have ended, or with the error of ctx.
func (s *Server) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	for l := range s.listeners {
		_ = l.closeSockets()
	}
	for p := range s.open {
		p.abort()
	}
	s.mu.Unlock()
	s.parking.close()
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

func (s *Server) config() *config.Config { return s.opt.Process.Config() }

// service returns a service's configuration, or the defaults if the stream has outlived it.
func (s *Server) service(name string) *config.Service {
	if c := s.config().Services[name]; c != nil {
		return c
	}
	return config.DefaultService(name)
}

// limits returns the limits of messages whose bodies, of any length, are passed on.
func (s *Server) limits() *protocol.Limits {
	lim := &s.config().Limits
	return &protocol.Limits{Header: int(lim.Header), Headers: lim.Headers, Message: protocol.NoLimit}
}

// sleep waits for d, or until Close.
func (s *Server) sleep(d time.Duration) {
	select {
	case <-time.After(d):
	case <-s.ctx.Done():
	}
}
