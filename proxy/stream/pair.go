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

// pair owns the two ends of a stream, and ends them: down to the client, and up to the endpoint, which is nil
// until it is connected. It knows where the stream and its client stand.
//
// A stream ends by one of
//
//	finish      the response is whole: its last bytes arrive, then both ends are closed
//	refuse      likewise, with a response that says why the stream fails; by abort if there is none
//	abort       at once, with a reset at both ends
//	cut         by abort, because of a limit, which why tells
//	onLeft      by abort, or soon, because the client has left
//	relay.run   both directions of relaying have ended
//
// closeUp ends only the request: the client may still get a response.
type pair struct {
	srv    *Server
	down   *end
	opener race.Opener // picks the endpoint, and counts why the stream was refused or ended; nil means a worker
	place  *fair.Place // of Server.places or Server.headPlaces; nil if it got none
	watch  *watch      // nil if no time is limited

	behind netip.Addr // the client of the sidecar at down, as in share.Source

	halfClose time.Duration // how long a client whose output has ended may get no bytes; 0: it counts as gone at once

	mu     sync.Mutex // guards up, upID, state and client
	up     *end
	upID   endpointID // that up leads to; zero if it is no endpoint of a service
	state  pairState
	client clientState

	why         atomic.Pointer[fault.Failure] // the limit that refused or ended the stream; nil if none did
	interactive atomic.Bool                   // both sides may pause: the client's bodies have no pace
	readerDone  chan struct{}                 // closed when the goroutine of readDown has ended; nil if there is none
}

// states returns where the stream and its client stand.
func (p *pair) states() (pairState, clientState) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state, p.client
}

// enter changes the state of the stream. The caller must not hold p.mu.
func (p *pair) enter(next pairState) {
	p.mu.Lock()
	p.state.become(next)
	p.mu.Unlock()
	p.watch.rearm()
}

// note changes the state of the client. The caller must not hold p.mu.
func (p *pair) note(next clientState) {
	p.mu.Lock()
	p.client.become(next)
	p.mu.Unlock()
	p.watch.rearm()
}

// attachUp sets up, which leads to the endpoint id, unless the stream was aborted: then it resets up and returns
// ErrClosed. It resets up too if the endpoint is down.
func (p *pair) attachUp(up *end, id endpointID) error {
	p.mu.Lock()
	state := p.state
	if state != aborted {
		p.up, p.upID = up, id
	}
	p.mu.Unlock()
	switch {
	case state == aborted:
		up.reset()
		return ErrClosed
	case p.srv.down.has(id): // asked after upID is set: SetDown sees upID, or has sees what SetDown has set
		up.reset()
		return fault.Error{Failure: fault.EndpointDown}
	}
	return nil
}

// abort ends the stream at once, with a reset at both ends.
func (p *pair) abort() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state.become(aborted)
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
	state, _ := p.states()
	return state == aborted
}

// closeUp closes up. If the request was not sent completely, it resets up, so that the
// endpoint can tell.
func (p *pair) closeUp(complete bool) {
	switch up := p.upstream(); {
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
		p.guard(upload)
		if _, err := io.Copy(io.Discard, p.down); err == nil && p.halfClose > 0 {
			p.note(clientEnded)
			p.outlastInput()
		}
		p.onLeft()
	})
}

// outlastInput returns when the client, whose output has ended, has left: its connection is reset, or it has
// received nothing for halfClose. The kernel of one that has closed resets the connection when bytes arrive.
// outlastInput also returns when the stream ends.
func (p *pair) outlastInput() {
	for {
		received := p.down.counters().acknowledged
		_ = p.down.SetReadDeadline(time.Now().Add(p.halfClose))
		if state, _ := p.states(); state >= finishing { // finish may have set its deadline before
			return
		}
		err := p.down.awaitGone()
		if !errors.Is(err, os.ErrDeadlineExceeded) || p.down.counters().acknowledged == received {
			return
		}
	}
}

// onLeft ends a stream whose client has closed, since the client does not want the response. If a response is passed
// on, the client may have closed because it has all of it. So onLeft only interrupts that goroutine, by deadlines that
// have passed, and the goroutine aborts the stream if bytes are left.
func (p *pair) onLeft() {
	switch p.noteLeft() {
	case finishing, aborted:
	case responding:
		_ = p.upstream().SetReadDeadline(longAgo)
		_ = p.down.SetWriteDeadline(longAgo)
	default:
		p.abort()
	}
}

// noteLeft notes that the client has closed or failed, unless the stream has ended otherwise. It returns where the
// stream stands.
func (p *pair) noteLeft() pairState {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state < finishing {
		p.client.become(clientLeft)
	}
	return p.state
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

// finish closes up, as closeUp says, writes the last bytes of a response, and closes down in a way that lets them
// arrive: a close with unread input would send a reset, which can destroy them.
func (p *pair) finish(out []byte, complete bool) {
	p.enter(finishing)
	p.closeUp(complete)
	defer p.down.Close()
	_ = p.down.SetWriteDeadline(time.Now().Add(p.srv.config().Timeouts.Write))
	if _, err := p.down.Write(out); err == nil {
		_ = p.down.CloseWrite()
	}
	if p.down.pipe != nil {
		p.finishPipe()
		return
	}
	if _, client := p.states(); client == clientEnded {
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

// refuse sends out, a response with the failure, and closes both ends; it aborts if out is empty.
func (p *pair) refuse(out []byte) {
	if len(out) == 0 || p.srv.ctx.Err() != nil || p.isAborted() {
		p.abort()
		return
	}
	p.finish(out, false)
}

// upstream returns the end to the endpoint, or nil if it is not connected.
func (p *pair) upstream() *end {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.up
}

// moved returns the bytes that both ends have received or acknowledged.
func (p *pair) moved() uint64 {
	if up := p.upstream(); up != nil {
		return p.down.moved() + up.moved()
	}
	return p.down.moved()
}

func (p *pair) endpointID() endpointID {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.upID
}
