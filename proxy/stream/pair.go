package stream

import (
	"errors"
	"io"
	"math"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/remora-proxy/remora/proxy/fair"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/race"
)

// pair is the two ends of a stream, which it owns: down to the client, and up to the endpoint,
// which is nil until it is connected.
type pair struct {
	srv   *Server
	down  *end
	by    race.Opener // counts the limit that refused or ended the stream; nil means a worker
	place *fair.Place // of Server.places or Server.headPlaces; nil if it got none
	watch *watch      // nil if no time is limited

	behind netip.Addr // the client of the sidecar at down, as in share.Source

	guarded   bool          // hosts have rules, round which no request of HTTP must go unread
	halfClose time.Duration // how long a client whose output has ended may get nothing; 0 means that it has left

	mu      sync.Mutex // guards up, of and severed
	up      *end
	of      endpointID // that up leads to; zero if it is no endpoint of a service
	severed bool

	at     string // "ip:port" that was dialled last; used by the goroutine of the stream
	onward hop    // in Server.hops until the stream has ended; the zero value means none

	why          atomic.Pointer[fault.Failure] // the limit that refused or ended the stream; nil if none did
	uploading    atomic.Bool                   // the client has to send a body
	downloading  atomic.Bool                   // the client has to read a body
	broken       atomic.Bool                   // the stream must end with a reset
	awaitingHead atomic.Bool                   // the head of a response is awaited with its own deadline: the stream is not idle
	responding   atomic.Bool                   // a final response is passed on
	interactive  atomic.Bool                   // both sides may pause: the client's bodies have no pace
	left         atomic.Bool                   // the client has gone before the end
	inputEnded   atomic.Bool                   // the client's output has ended, and it may wait for the response
	downDone     atomic.Bool                   // nothing more will be sent to down; its end is no abort
	readerDone   chan struct{}                 // closed when the goroutine of readDown has ended; nil if there is none
}

// attachUp sets up, which leads to of, unless the stream was aborted: then it resets up and returns
// ErrClosed. It resets up too if the endpoint is down.
func (p *pair) attachUp(up *end, of endpointID) error {
	p.mu.Lock()
	severed := p.severed
	if !severed {
		p.up, p.of = up, of
	}
	p.mu.Unlock()
	switch {
	case severed:
		up.reset()
		return ErrClosed
	case p.srv.isDown(of): // asked after of is set, so that SetDown or isDown sees the other
		up.reset()
		return fault.Error{Failure: fault.EndpointDown}
	}
	return nil
}

// abort ends the stream at once, with a reset at both ends.
func (p *pair) abort() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.severed = true
	p.down.reset()
	if p.up != nil {
		p.up.reset()
	}
}

// cut ends the stream at once, because of a limit.
func (p *pair) cut(f *fault.Failure) {
	if p.why.CompareAndSwap(nil, f) {
		p.abort()
	}
}

// isAborted reports whether the stream was aborted. Later failures are not the endpoint's.
func (p *pair) isAborted() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.severed
}

// closeUp closes up. If the request was not sent completely, it resets up, so that the
// endpoint can tell.
func (p *pair) closeUp(complete bool) {
	switch up := p.endpoint(); {
	case up == nil:
	case complete:
		_ = up.Close() // may wait, so not under mu: abort must not
	default:
		up.reset()
	}
}

// readDown starts a goroutine that reads down: first upload does, then the input is discarded
// until its end. onLeft is called when the client has left.
func (p *pair) readDown(upload func()) {
	p.readerDone = make(chan struct{})
	p.srv.all.Go(func() {
		defer close(p.readerDone)
		upload()
		if _, err := io.Copy(io.Discard, p.down); err == nil && p.halfClose > 0 {
			p.inputEnded.Store(true)
			p.outlastInput()
		}
		p.onLeft()
	})
}

// outlastInput returns when the client, whose output has ended, has left: its connection is reset, or it has
// received nothing for halfClose. The kernel of one that has closed resets the connection when bytes arrive.
// outlastInput also returns when the stream ends.
func (p *pair) outlastInput() {
	for !p.downDone.Load() {
		received := p.down.counters().acknowledged
		_ = p.down.SetReadDeadline(time.Now().Add(p.halfClose))
		if p.downDone.Load() { // finish may have set its deadline before
			return
		}
		err := p.down.awaitGone()
		if !errors.Is(err, os.ErrDeadlineExceeded) || p.down.counters().acknowledged == received {
			return
		}
	}
}

// onLeft ends a stream whose client has closed, since it does not want the response. While a
// response is passed on, the goroutine that does so may have passed on all of it, and the client
// has read it: so that goroutine is only interrupted. It aborts the stream if bytes are left.
func (p *pair) onLeft() {
	switch p.noteLeft(); {
	case p.downDone.Load():
	case p.responding.Load():
		_ = p.endpoint().SetReadDeadline(longAgo)
		_ = p.down.SetWriteDeadline(longAgo)
	default:
		p.abort()
	}
}

// noteLeft notes that the client has closed or failed, unless the stream has ended otherwise.
func (p *pair) noteLeft() {
	if !p.downDone.Load() && !p.isAborted() {
		p.left.Store(true)
	}
}

// abortAfter aborts the stream because its response could not be passed on.
func (p *pair) abortAfter(f bodyFault) {
	if f == toFault {
		p.noteLeft()
	}
	p.abort()
}

// longAgo is a deadline that interrupts.
var longAgo = time.Unix(1, 0)

// finish writes the last bytes of a response and closes down in a way that lets them arrive: a
// close with unread input would send a reset, which can destroy them.
func (p *pair) finish(out []byte) {
	p.downDone.Store(true)
	p.hasBody(&p.downloading)
	defer p.down.Close()
	_ = p.down.SetWriteDeadline(time.Now().Add(p.srv.config().Timeouts.Write))
	if _, err := p.down.Write(out); err == nil {
		_ = p.down.CloseWrite()
	}
	if p.down.pipe != nil {
		p.finishPipe()
		return
	}
	if p.inputEnded.Load() {
		_ = p.down.SetReadDeadline(longAgo)
	} else {
		_ = p.down.SetReadDeadline(time.Now().Add(p.srv.flush))
	}
	if p.readerDone != nil {
		<-p.readerDone
	}
	p.linger()
}

// finishPipe closes down, a pipe, once the loop has taken the response. The client need not end its
// side: its session tells it not to go on (RFC 9113 section 8.1).
func (p *pair) finishPipe() {
	if !p.down.pipe.Drain(p.srv.config().Timeouts.Write) {
		p.down.reset()
	}
	_ = p.down.Close()
	if p.readerDone != nil {
		<-p.readerDone
	}
}

// linger waits for the end of file of down. It gives up when the kernel has no more output, or
// when the peer has acknowledged none for timeouts.write.
func (p *pair) linger() {
	left, progress := math.MaxInt, time.Now()
	for {
		_ = p.down.SetReadDeadline(time.Now().Add(p.srv.flush))
		if _, err := io.Copy(io.Discard, p.down); !errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		n, now := p.down.unacknowledged(), time.Now()
		switch {
		case n == 0:
			return
		case n < left:
			left, progress = n, now
		case now.Sub(progress) >= p.srv.config().Timeouts.Write:
			return
		}
	}
}

// refuse sends out, a response with the failure, and closes down; it aborts if out is empty.
func (p *pair) refuse(out []byte) {
	if len(out) == 0 || p.srv.ctx.Err() != nil || p.isAborted() {
		p.abort()
		return
	}
	p.finish(out)
}

// endpoint returns the end to the endpoint, or nil if it is not connected.
func (p *pair) endpoint() *end {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.up
}

// moved returns the bytes that both ends have received or acknowledged.
func (p *pair) moved() uint64 {
	if up := p.endpoint(); up != nil {
		return p.down.moved() + up.moved()
	}
	return p.down.moved()
}

func (p *pair) endpointID() endpointID {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.of
}
