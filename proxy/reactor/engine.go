package reactor

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/panjf2000/gnet/v2"
	"golang.org/x/sys/unix"

	"github.com/remora-proxy/remora/proxy/loop"
)

// Options configure an Engine. The zero value is ready for use.
type Options struct {
	// Loops is the number of event loops, at most MaxLoops. 0: what the CPU
	// quota grants, Loops(CPUQuota()). The caller sets GOMAXPROCS to one more
	// (see Loops).
	Loops int

	// MaxConnections bounds the accepted connections that are open, over all
	// listeners. 0: half the limit of file descriptors, because an accepted
	// connection may need one to an endpoint. It is lowered to what the limit
	// allows.
	MaxConnections int

	// MaxPerSource bounds those of one peer, over all listeners: of an IPv4
	// address, or of a /64 network of IPv6. 0: only MaxConnections does.
	MaxPerSource int

	// MaxDials bounds the connection attempts under way; further ones wait,
	// their timeout running. 0: 128.
	MaxDials int

	// WriteStall is how long a draining connection may make no progress
	// before it is closed with what it still holds. 0: 30 s.
	WriteStall time.Duration

	// DialTLS says whether connections to a service use TLS: it returns where
	// to ask for the configuration at a handshake, or nil for plain text. Of a
	// stream that is no loop.Destined the service is "". It is called on the
	// loops and by DialSocket. nil: no connection does.
	DialTLS func(service string) func() *tls.Config

	// MaxHandshakes bounds the TLS handshakes of accepted connections that
	// are under way; what comes beyond is closed at once. 0: 512.
	MaxHandshakes int

	// HandshakeTimeout bounds each of them. 0: 5 s.
	HandshakeTimeout time.Duration

	// Logger receives panics and troubles of the sockets. nil: slog.Default().
	Logger *slog.Logger
}

// MaxLoops bounds Options.Loops: gnet numbers its loops in a byte.
const MaxLoops = 256

// Errors of this package. What the system reports is passed on as it is.
var (
	// ErrStopped is returned by an Engine that was stopped, and ends dials
	// that are then under way.
	ErrStopped = errors.New("reactor: stopped")
	// ErrPanic ends a connection whose stream panicked.
	ErrPanic = errors.New("reactor: the connection's stream panicked")
	// ErrLoops refuses a number of loops below 0 or above MaxLoops.
	ErrLoops = errors.New("reactor: number of loops out of range")
)

// Engine is a set of event loops on real sockets.
type Engine struct {
	log    *slog.Logger
	client *gnet.Client
	loops  []*eventLoop
	dialer dialer
	count  counters
	places places        // of accepted connections
	stall  atomic.Int64  // Options.WriteStall
	linger time.Duration // lingerTime

	originalDst func(*net.TCPConn) netip.AddrPort // originalDst

	dialTLS          func(service string) func() *tls.Config
	shaking          chan struct{} // a token for each handshake of an accepted connection
	handshakeTimeout time.Duration
	tlsFailures      tlsFailures

	// ctx ends with Stop: it cancels dials and wakes back-offs.
	ctx    context.Context
	cancel context.CancelFunc

	mu        sync.Mutex
	stopping  bool
	listeners map[*Listener]struct{}
	// helpers counts the goroutines that accept, shed, dial and enroll. The
	// loops outlive them: a socket on its way into a loop that is gone would
	// be lost, with the goroutine of gnet that waits for its arrival.
	helpers sync.WaitGroup
}

// counters are the running totals behind Stats.
type counters struct {
	accepted, acceptErrors atomic.Int64
	dialed, dialErrors     atomic.Int64
	open, panics           atomic.Int64
	detached, outside      atomic.Int64 // outside: those of a Room, and sockets that left
	handshakes             atomic.Int64
}

// Stats is a snapshot of an Engine's counters.
type Stats struct {
	Accepted      int64 // connections accepted and given to a loop
	Refused       int64 // connections closed at once, being over MaxConnections
	RefusedSource int64 // connections closed at once, being over MaxPerSource
	AcceptErrors  int64 // failed accepts, and accepted sockets that no loop took
	Inbound       int64 // accepted connections now open, detached and reserved ones too
	Open          int64 // connections now open, accepted and dialled, detached and reserved ones too
	Dialed        int64 // connections established
	DialErrors    int64 // dials that failed or took too long
	Panics        int64 // panics recovered from callbacks
	Detached      int64 // connections that left their loop
	Handshakes    int64 // TLS handshakes that succeeded

	// TLSFailures counts refused and broken TLS connections by code.
	TLSFailures map[string]int64
}

// Start starts the loops.
func Start(o Options) (*Engine, error) {
	if o.Loops == 0 {
		o.Loops = Loops(CPUQuota())
	}
	if o.Loops < 0 || o.Loops > MaxLoops {
		return nil, fmt.Errorf("%w: %d", ErrLoops, o.Loops)
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	o.MaxConnections = capConnections(o.MaxConnections, fileLimit())
	if o.MaxDials <= 0 {
		o.MaxDials = 128
	}
	if o.WriteStall <= 0 {
		o.WriteStall = 30 * time.Second
	}
	if o.MaxHandshakes <= 0 {
		o.MaxHandshakes = 512
	}
	if o.HandshakeTimeout <= 0 {
		o.HandshakeTimeout = 5 * time.Second
	}
	e := &Engine{
		log: o.Logger, linger: lingerTime, originalDst: originalDst,
		listeners: make(map[*Listener]struct{}),
		dialTLS:   o.DialTLS, shaking: make(chan struct{}, o.MaxHandshakes), handshakeTimeout: o.HandshakeTimeout,
	}
	e.SetWriteStall(o.WriteStall)
	e.places.max, e.places.maxSource = int64(o.MaxConnections), o.MaxPerSource
	e.places.bySource = make(map[netip.Addr]int)
	e.ctx, e.cancel = context.WithCancel(context.Background())
	e.dialer = dialer{eng: e, max: o.MaxDials}
	if err := e.boot(o.Loops); err != nil {
		e.cancel()
		return nil, fmt.Errorf("reactor: start: %w", err)
	}
	return e, nil
}

// boot starts gnet without a listener of its own, and puts a timer on every
// loop. gnet gives each of these to the emptiest loop, so they visit all of
// them; a loop is known by the timer that arrived there.
func (e *Engine) boot(n int) error {
	client, err := gnet.NewClient(&handler{eng: e},
		gnet.WithNumEventLoop(n), gnet.WithLogger(engineLog{e.log}))
	if err != nil {
		return err
	}
	if err := client.Start(); err != nil {
		return err
	}
	e.client = client
	var begin epoch
	if err := begin.calibrate(); err != nil {
		return errors.Join(err, e.halt())
	}
	known := make(map[gnet.EventLoop]bool)
	for len(e.loops) < n {
		l := newLoop(e, len(e.loops), begin)
		if err = l.clock.enroll(client, l); err == nil && (l.el == nil || known[l.el]) {
			err = errors.New("gnet did not spread the timers over its loops")
		}
		e.loops = append(e.loops, l)
		if err != nil {
			return errors.Join(err, e.halt())
		}
		known[l.el] = true
	}
	return nil
}

// halt ends gnet's loops and frees the timers.
func (e *Engine) halt() error {
	for _, l := range e.loops {
		l.retire()
	}
	err := e.client.Stop()
	for _, l := range e.loops {
		err = errors.Join(err, l.clock.close())
	}
	return err
}

// Loops are the engine's loops, the same ones in the same order on each call.
func (e *Engine) Loops() []loop.Loop {
	loops := make([]loop.Loop, len(e.loops))
	for i, l := range e.loops {
		loops[i] = l
	}
	return loops
}

// SetWriteStall changes Options.WriteStall. Any goroutine may call it.
func (e *Engine) SetWriteStall(d time.Duration) { e.stall.Store(int64(d)) }

// Stats reads the counters. Any goroutine may call it.
func (e *Engine) Stats() Stats {
	c := &e.count
	return Stats{
		Accepted: c.accepted.Load(), AcceptErrors: c.acceptErrors.Load(),
		Refused: e.places.refused.Load(), RefusedSource: e.places.refusedSource.Load(),
		Inbound: e.places.taken.Load(), Open: c.open.Load() + c.outside.Load(),
		Dialed: c.dialed.Load(), DialErrors: c.dialErrors.Load(), Panics: c.panics.Load(),
		Detached:   c.detached.Load(),
		Handshakes: c.handshakes.Load(), TLSFailures: e.tlsFailures.snapshot(),
	}
}

// Stop closes all listeners and connections at once, tells their streams, and
// returns when every goroutine of the engine has ended, or with ctx's error
// when a callback keeps a loop from doing so. A second call returns ErrStopped.
// It waits for the loops, so it is never called on one.
func (e *Engine) Stop(ctx context.Context) error {
	e.mu.Lock()
	if e.stopping {
		e.mu.Unlock()
		return ErrStopped
	}
	e.stopping = true
	for l := range e.listeners {
		_ = l.ln.Close()
	}
	e.mu.Unlock()
	e.cancel()

	done := make(chan error, 1)
	go func() { done <- e.shutdown() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (e *Engine) shutdown() error {
	e.helpers.Wait()
	for _, l := range e.loops {
		closed := make(chan struct{})
		l.Post(l.closeAll)
		// The second post comes after the turn that told the streams.
		l.Post(func() { l.Post(func() { close(closed) }) })
		<-closed
	}
	return e.halt()
}

// spawn runs f in a goroutine that Stop waits for; false when it is too late.
func (e *Engine) spawn(f func()) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopping {
		return false
	}
	e.helpers.Go(f)
	return true
}

// reservedFiles are descriptors for all but accepted connections: listeners,
// epoll, the log, and a few endpoints.
const reservedFiles = 64

// capConnections is the bound of accepted connections under a limit of files.
func capConnections(wanted, files int) int {
	if wanted <= 0 {
		wanted = files / 2
	}
	return max(1, min(wanted, files-reservedFiles))
}

// fileLimit is the soft limit of open files.
func fileLimit() int {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		return 1024
	}
	return int(min(r.Cur, 1<<20))
}
