package stream

import (
	"cmp"
	"sync"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// maxKept is how many bytes of a request are kept behind its head until an endpoint responds. After
// more than that no other endpoint can get the request.
const maxKept = 64 << 10

// replay writes a request to its endpoint. If that refuses the request before it did anything, another
// one gets what was written, and what follows.
type replay struct {
	proc     *proxy.Process // counts the memory held
	onBroken func()         // called when a write has failed: the response says why

	mu      sync.Mutex
	changed sync.Cond
	to      *end   // that got all that was written, unless another one is sought
	seeking bool   // another endpoint is sought
	settled bool   // no other endpoint will be sought
	kept    []byte // all that was written; nil once settled
	max     int    // of kept
	held    int    // bytes counted
}

func newReplay(proc *proxy.Process, head []byte, onBroken func()) *replay {
	r := &replay{proc: proc, onBroken: onBroken, seeking: true, kept: head, max: len(head) + maxKept}
	r.changed.L = &r.mu
	r.charge()
	return r
}

func (r *replay) charge() {
	r.proc.Charge(cap(r.kept) - r.held)
	r.held = cap(r.kept)
}

// write writes b to the endpoint, now or once there is one. It returns no error if b can still reach
// another one.
func (r *replay) write(b []byte) error {
	to := r.keep(b)
	_, err := to.Write(b)
	if err == nil || !r.isLost(to) {
		return nil
	}
	return err
}

// keep adds b to what was written, and returns the endpoint that gets it.
func (r *replay) keep(b []byte) *end {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.seeking && !r.settled {
		r.changed.Wait()
	}
	switch {
	case r.settled:
	case len(r.kept)+len(b) > r.max:
		r.settleLocked()
	default:
		r.kept = append(r.kept, b...)
		r.charge()
	}
	return r.to
}

// isLost waits until the response says what has become of a request, a write of which to the endpoint
// has failed. It reports whether no other endpoint gets the request.
func (r *replay) isLost(to *end) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.to == to && !r.seeking && !r.settled {
		r.onBroken()
	}
	for r.to == to && !r.seeking && !r.settled {
		r.changed.Wait()
	}
	return r.to == to && r.settled
}

// suspend makes writes wait for another endpoint. It reports whether that can get the request.
func (r *replay) suspend() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.settled {
		r.seeking = true
		r.changed.Broadcast()
	}
	return !r.settled
}

// resume sends to an endpoint what was written so far, and what follows. The response shows whether it
// arrives.
func (r *replay) resume(to *end) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, _ = to.Write(r.kept)
	r.to, r.seeking = to, false
	r.changed.Broadcast()
}

// settle is called when no other endpoint may get the request any more. A nil replay is settled.
func (r *replay) settle() {
	if r != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.settleLocked()
	}
}

func (r *replay) settleLocked() {
	r.settled, r.kept = true, nil
	r.charge()
	r.changed.Broadcast()
}

// destination returns the endpoint, and whether it stays that.
func (r *replay) destination() (to *end, settled bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.to, r.settled
}

// refusal returns why another sidecar has refused the request before any application saw it, or nil
// if resp is a response to it.
func (x *requestStream) refusal(resp *protocol.Response) *fault.Failure {
	if !x.linked {
		return nil
	}
	return fault.OfCode(protocol.Find(resp.Headers, protocol.HeaderError))
}

// mayRepeat reports whether the request may be sent again after f.
func (x *requestStream) mayRepeat(f *fault.Failure) bool {
	return f.Free() || f == fault.Reset && x.repeats < x.r.Repeats && x.r.Kind == stats.StreamBody
}

// tryAgain sends the request to another endpoint, after the last one has refused it with f, or was lost. It
// returns why the stream fails, or nil.
func (x *requestStream) tryAgain(f *fault.Failure) *fault.Failure {
	if x.stream == nil || x.isAborted() || !x.replay.suspend() {
		return f
	}
	if !f.Free() {
		x.repeats++
	}
	x.closeUp(false)
	if x.linked, f = x.connector.reconnect(&x.query, x.stream, f); f != nil {
		x.stream = nil
		return f
	}
	if f = cmp.Or(x.requestFault.Load(), x.why.Load()); f != nil { // the endpoint before was reset for it
		return f
	}
	x.restoreTimeout()
	x.replay.resume(x.up)
	return nil
}

// restoreTimeout sets the deadline of the head at another endpoint, unless the client still sends the request.
func (x *requestStream) restoreTimeout() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.client == clientUploading && x.state.become(opening) {
		x.until = time.Time{}
	}
	_ = x.up.SetDeadline(x.until)
}
