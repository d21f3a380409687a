package reactor

import (
	"cmp"
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

	"github.com/remora-proxy/remora/internal/cpuquota"
	"github.com/remora-proxy/remora/internal/panics"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/reactor/engine"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// Options configure a Reactor. The zero value is ready for use.
type Options struct {
	// Engine waits for the sockets of the loops. The zero value means engine.Auto.
	Engine engine.Kind

	// Loops is the number of event loops, at most MaxLoops. 0 means one for each whole CPU of the quota.
	// The caller should set GOMAXPROCS to Processors (docs/decisions/0001-engine.md says why). Handshakes get what GOMAXPROCS
	// has beyond the loops, at least one.
	Loops int

	// MaxConnections limits the accepted connections that are open, over all listeners. 0
	// means as many as the limit of file descriptors allows (see processFiles). Start lowers a larger
	// number to that.
	MaxConnections int

	// ReservedFiles is the number of file descriptors that the caller needs for purposes that
	// the Reactor does not know: its other servers and clients.
	ReservedFiles int

	// MaxPerSource limits the accepted connections of one source, over all listeners: an IPv4
	// address or an IPv6 /64 network. Peers that have proved who they are by TLS do not count. 0
	// means a quarter of MaxConnections, without connections to a loopback address.
	MaxPerSource int

	// WriteStall is how long a draining connection may make no progress before it is closed
	// and its remaining output is lost. 0 means 30 s.
	WriteStall time.Duration

	// DialTLS returns the function that provides the TLS configuration for a handshake with the
	// endpoint at addr ("ip:port") of the service with a key, or nil for plain text. The key of a receiver
	// that is no loop.Destined is "", and so is the name of a receiver that is no loop.Named. DialTLS is called
	// on the loops and by SocketDialer. nil means plain text for all services.
	DialTLS func(key, addr, name string) func() *tls.Config

	// DialOther returns another address of the host at addr, to connect to if addr does not accept, or
	// "". It is called as DialTLS is. nil means that no host has another.
	DialOther func(key, addr string) string

	Logger *slog.Logger // gets panics and errors of sockets; nil means slog.Default()
}

// maxDials limits the dials on goroutines. Further ones wait while their timeout runs; one that
// was not tried until then fails with loop.ErrDialQueue.
const maxDials = 512

// MaxLoops limits Options.Loops.
const MaxLoops = 256

// Errors of this package. Errors of the system are passed on unchanged.
var (
	// ErrStopped reports that the Reactor was stopped. Dials in progress end with it.
	ErrStopped = errors.New("reactor: stopped")
	// ErrPanic ends a connection whose receiver panicked.
	ErrPanic = errors.New("reactor: the connection's receiver panicked")
	// ErrLoops reports a number of loops below 0 or above MaxLoops.
	ErrLoops = errors.New("reactor: number of loops out of range")
)

// Reactor runs event loops on real sockets: it starts them, gives them the sockets that listen, and stops them. What the
// loops share is in its parts, each of which does its own job.
type Reactor struct {
	kind   engine.Kind // which waits for the sockets of each loop
	log    *slog.Logger
	began  time.Time // the start of the loops' time
	onWork atomic.Pointer[func()]
	loops  []*eventLoop
	count  counters
	panics *panics.Counter
	stall  atomic.Int64  // Options.WriteStall
	linger time.Duration // lingerTime
	wait   time.Duration // waitTime

	originalDst func(*net.TCPConn) netip.AddrPort // originalDst

	connections Connections
	endpoints   endpoints
	dialer      dialer
	handshakes  handshakes
	tls         tlsOutcomes
	trust       Trust

	// Stop cancels ctx, which ends dials and back-offs.
	ctx    context.Context
	cancel context.CancelFunc

	mu        sync.Mutex
	stopping  bool
	listeners map[*Listener]struct{}
	// helpers counts the goroutines that refuse, dial, do handshakes and read first bytes. The loops
	// must outlive them: a socket that is given to a loop that has ended would be lost.
	helpers sync.WaitGroup

	next    chan func()  // for a helper that waits
	waiting atomic.Int64 // helpers that wait, at most maxWaiting, or decide whether to
}

type counters struct {
	accepted, acceptErrors atomic.Int64
	dialled, dialErrors    atomic.Int64
	detached               atomic.Int64
}

// Start starts a Reactor with its loops. The caller must Stop it.
func Start(o Options) (*Reactor, error) {
	if o.Loops == 0 {
		o.Loops = min(cpuquota.Whole(), MaxLoops)
	}
	if o.Loops < 0 || o.Loops > MaxLoops {
		return nil, fmt.Errorf("%w: %d", ErrLoops, o.Loops)
	}
	if o.Engine.Open == nil {
		var err error
		if o.Engine, err = engine.Find(engine.Auto); err != nil {
			return nil, fmt.Errorf("reactor: start: %w", err)
		}
	}
	r := &Reactor{
		kind: o.Engine,
		log:  cmp.Or(o.Logger, slog.Default()), began: time.Now(), linger: lingerTime, wait: waitTime, originalDst: originalDst,
		endpoints:  endpoints{tls: o.DialTLS, other: o.DialOther},
		handshakes: newHandshakes(o.Loops), next: make(chan func()), listeners: make(map[*Listener]struct{}),
	}
	r.tls.log, r.panics = r.log, panics.NewCounter(r.log)
	r.trust.reactor = r
	r.SetWriteStall(cmp.Or(o.WriteStall, 30*time.Second))
	r.connections.limitFiles(&o, r.log)
	r.connections.limitSources(o.MaxPerSource)
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.dialer = dialer{reactor: r, max: maxDials, queued: map[string]int{}, dials: map[string]int{}}
	if err := r.boot(o.Loops); err != nil {
		r.cancel()
		return nil, fmt.Errorf("reactor: start: %w", err)
	}
	return r, nil
}

func (r *Reactor) boot(n int) error {
	for i := range n {
		l, err := startLoop(r, i)
		if err != nil {
			return errors.Join(err, r.halt())
		}
		r.loops = append(r.loops, l)
	}
	for _, l := range r.loops {
		l.Post(func() { l.moving.all = r.loops })
	}
	return nil
}

// halt ends the loops, on which nothing may be any more.
func (r *Reactor) halt() (err error) {
	for _, l := range r.loops {
		err = errors.Join(err, l.halt())
	}
	return err
}

// Loops returns the loops, in the same order on each call.
func (r *Reactor) Loops() []loop.Loop {
	loops := make([]loop.Loop, len(r.loops))
	for i, l := range r.loops {
		loops[i] = l
	}
	return loops
}

// SetWriteStall changes Options.WriteStall. It may be called from any goroutine.
func (r *Reactor) SetWriteStall(d time.Duration) { r.stall.Store(int64(d)) }

func (r *Reactor) writeStall() time.Duration { return time.Duration(r.stall.Load()) }

// OnWork has f called once, on a loop, at the end of the next turn with an event, or of the one in
// progress. f must not block. It takes the place of a function that was not called yet. Any goroutine
// may call OnWork.
func (r *Reactor) OnWork(f func()) { r.onWork.Store(&f) }

// Panics returns what counts panics, on the loops and on goroutines.
func (r *Reactor) Panics() *panics.Counter { return r.panics }

// Connections returns the count of connections and descriptors.
func (r *Reactor) Connections() *Connections { return &r.connections }

// Handshakes returns how many TLS handshakes of accepted connections are in progress, and how
// many may be. Any goroutine may call it.
func (r *Reactor) Handshakes() (taken, max int) { return r.handshakes.inProgress() }

// SocketDialer returns what connects without a loop.
func (r *Reactor) SocketDialer() *SocketDialer { return &SocketDialer{r} }

// Trust returns what verifies the peers of open connections again.
func (r *Reactor) Trust() *Trust { return &r.trust }

// Stats returns the counters. It may be called from any goroutine.
func (r *Reactor) Stats() stats.DriverStats {
	c, n := &r.count, &r.connections
	s := stats.DriverStats{
		Accepted: c.accepted.Load(), AcceptErrors: c.acceptErrors.Load(),
		Refused: n.refused.Load(), RefusedSource: n.refusedSource.Load(),
		Inbound: n.Accepted(), Open: n.Files(),
		Dialled: c.dialled.Load(), DialErrors: c.dialErrors.Load(), Panics: r.panics.Count(),
		Detached: c.detached.Load(),
	}
	s.Handshakes, s.Resumed, s.TLSFailures = r.tls.snapshot()
	return s
}

// Stop closes all listeners and connections at once and calls OnClose of their receivers. It
// returns when every goroutine of the reactor has ended, or with the error of ctx if a callback
// blocks a loop. A second call returns ErrStopped. It must not be called on a loop.
func (r *Reactor) Stop(ctx context.Context) error {
	r.mu.Lock()
	if r.stopping {
		r.mu.Unlock()
		return ErrStopped
	}
	r.stopping = true
	r.mu.Unlock()
	r.cancel()

	done := make(chan error, 1)
	go func() { done <- r.shutdown() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *Reactor) shutdown() error {
	r.mu.Lock()
	listeners := r.listeners
	r.listeners = nil // from here on Close does nothing
	r.mu.Unlock()
	var failed error
	for l := range listeners {
		failed = errors.Join(failed, l.close())
	}
	r.helpers.Wait()
	for _, l := range r.loops {
		stays := make(chan struct{})
		l.Post(func() { l.moving.stop(); close(stays) }) // a connection that moves could miss the end of the others
		<-stays
	}
	for _, l := range r.loops {
		closed := make(chan struct{})
		l.Post(l.newcomers.end)
		l.Post(l.conns.end)
		// The second function runs after the turn that calls OnClose.
		l.Post(func() { l.Post(func() { close(closed) }) })
		<-closed
	}
	return errors.Join(failed, r.halt())
}

// maxWaiting limits the helpers that wait for more to do, and waitTime how long each waits.
const (
	maxWaiting = 16
	waitTime   = time.Second
)

// spawn runs f on a goroutine that Stop waits for. After Stop it returns false. A function that owns a connection calls
// panics.Guard around what parses the peer's bytes, and closes the connection if that panics.
//
// The goroutine may have run other functions before: then its stack has usually grown already. Growing it costs a new goroutine as
// much as a tenth of a resumed handshake.
func (r *Reactor) spawn(f func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopping {
		return false
	}
	select {
	case r.next <- f:
	default:
		r.helpers.Go(func() { r.help(f) })
	}
	return true
}

// help runs f, and then what spawn brings, unless enough other helpers wait.
func (r *Reactor) help(f func()) {
	over := time.NewTimer(r.wait)
	defer over.Stop()
	for f != nil {
		r.panics.Do(f)
		f = nil
		if r.waiting.Add(1) <= maxWaiting {
			over.Reset(r.wait)
			select {
			case f = <-r.next:
			case <-over.C:
			case <-r.ctx.Done():
			}
		}
		r.waiting.Add(-1)
	}
}
