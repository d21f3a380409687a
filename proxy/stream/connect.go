package stream

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/netip"
	"os"
	"time"

	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/race"
)

type endpointQuery struct {
	service  string
	unrouted *downstream.Unrouted // connects there instead; nil means to the service
	kind     link.StreamKind      // sent to an endpoint that is another sidecar
	timeout  time.Duration        // sent to that sidecar
	host     string               // of the request, for a service whose TLS needs it; else ""
	message  bool                 // the stream is one HTTP request and its response, which a pipe can carry
}

// pick is the result of an endpointQuery: a stream with its target, or a failure.
type pick struct {
	stream *race.Stream
	at     race.Target
	fail   *fault.Failure
}

// connect connects p to an endpoint that takes the stream. Unless it fails, the caller must
// close st, which is nil without a service. linked reports whether the endpoint is another
// sidecar.
func (p *pair) connect(q *endpointQuery) (st *race.Stream, linked bool, fail *fault.Failure) {
	if q.unrouted != nil {
		return nil, false, (&unrouted{p, q.unrouted}).connect()
	}
	got := p.await(func(picked race.Picked) { p.opener.Open(q.service, picked) })
	if fail = got.fail; fail == nil {
		linked, fail = p.openAt(q, got.stream, got.at)
	}
	if fail != nil {
		return nil, false, fail
	}
	return got.stream, linked, nil
}

// reconnect connects p to another endpoint, after the last one refused the stream with why. If it
// fails, st is closed.
func (p *pair) reconnect(q *endpointQuery, st *race.Stream, why *fault.Failure) (linked bool, fail *fault.Failure) {
	got := p.await(func(picked race.Picked) { st.Retry(why, nil, picked) })
	if got.fail != nil {
		return false, got.fail
	}
	return p.openAt(q, st, got.at)
}

// openAt opens the stream at an endpoint, or at another one if that does not take it. If it fails,
// st is closed.
func (p *pair) openAt(q *endpointQuery, st *race.Stream, at race.Target) (linked bool, fail *fault.Failure) {
	var last fault.Error
	for {
		err := p.open(q, st, at)
		if err == nil {
			return at.Link, nil
		}
		if p.isAborted() || p.srv.ctx.Err() != nil {
			st.Close(false, 0, 0)
			return false, cmp.Or(p.why.Load(), fault.Draining)
		}
		why := fault.Connect
		if errors.As(err, &last) {
			why = last.Failure
		}
		got := p.await(func(picked race.Picked) { st.Retry(why, err, picked) })
		switch {
		case got.fail == fault.Connect && last.Failure != nil:
			return false, last.Failure
		case got.fail != nil:
			return false, got.fail
		}
		at = got.at
	}
}

// await has the core look for an endpoint, and waits for it. The loop of the core may have stopped, so Close
// ends the wait.
func (p *pair) await(begin func(picked race.Picked)) (got pick) {
	picks := make(chan pick, 1)
	begin(func(s *race.Stream, at race.Target, f *fault.Failure) { picks <- pick{s, at, f} })
	select {
	case got = <-picks:
		return got
	case <-p.srv.ctx.Done():
		return pick{fail: fault.Draining}
	}
}

// open connects to an endpoint. To another sidecar it also sends the preface, and waits until
// that sidecar accepts a stream that can't be refused by an HTTP response.
func (p *pair) open(q *endpointQuery, st *race.Stream, at race.Target) error {
	if at.Socket != nil {
		return p.openPipe(q, at)
	}
	var first []byte
	if !at.Link {
		first = proxyHeader(p, q.service)
	}
	if err := p.dial(st, at.Addr, q.service, q.serverName(st.TLS(), at), first); err != nil || !at.Link {
		return err
	}
	err := p.sendPreface(&link.Stream{Kind: q.kind, TimeLeft: q.timeout})
	if err != nil {
		p.closeUp(false)
	}
	return err
}

// openPipe waits until the endpoint's connection takes the stream. The loop bounds that by
// connect_timeout, and says whether a dial failed or no connection had room; twice that time
// is for a loop that is late.
func (p *pair) openPipe(q *endpointQuery, at race.Target) error {
	p.dialled = at.Addr
	up := endOf(at.Socket)
	if !q.message || up == nil || up.pipe == nil {
		at.Socket.Reset()
		return fault.Error{Failure: fault.Unsupported}
	}
	if err := p.attachUp(up, endpointID{q.service, at.Addr}); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(p.srv.ctx, 2*p.srv.service(q.service).ConnectTimeout)
	defer cancel()
	err := up.pipe.AwaitOpen(ctx)
	if err != nil {
		up.reset()
	}
	if errors.Is(err, loop.ErrDialQueue) {
		return fault.Error{Failure: fault.DialLimit}
	}
	return err
}

// serverName returns the name that the endpoint must prove by TLS.
func (q *endpointQuery) serverName(c *config.ServiceTLS, at race.Target) string {
	if c.ByHost() && q.host != "" {
		return q.host
	}
	return c.ServerName(at.Host, at.Addr)
}

// dial connects to addr of the stream's service, which must prove name by TLS, and sends first before
// anything else.
func (p *pair) dial(st *race.Stream, addr, service, name string, first []byte) error {
	p.dialled = addr
	ctx, cancel := context.WithTimeout(p.srv.ctx, p.srv.service(service).ConnectTimeout)
	defer cancel()
	sock, err := p.srv.opt.Dial(ctx, addr, st.Key(), name, first)
	switch {
	case errors.Is(err, loop.ErrDialQueue):
		return fault.Error{Failure: fault.DialLimit}
	case err != nil:
		return err
	}
	return p.attachUp(endOf(sock), endpointID{service, addr})
}

// dialDestination connects to the original destination of a redirected connection.
func (p *pair) dialDestination(to netip.AddrPort) *fault.Failure {
	if _, ours := p.srv.hops.Load(hop{addrPort(p.down.RemoteAddr()), to}); ours {
		p.srv.opt.Logger.Warn("connection refused: it was made by this sidecar and redirected to it; exclude the sidecar's user id from redirection",
			"destination", to.String())
		return fault.Loop
	}
	ctx, cancel := context.WithTimeout(p.srv.ctx, passTimeout)
	defer cancel()
	sock, err := p.srv.opt.Dial(ctx, to.String(), "", "", nil)
	if err == nil {
		err = p.attachUp(endOf(sock), endpointID{})
	}
	if err != nil {
		p.srv.opt.Logger.Debug("original destination not connected", "destination", to.String(), "error", err)
		return fault.Connect
	}
	// The hop is added before a byte is sent: if the kernel redirects this connection to the
	// sidecar too, it must be found.
	p.onward = hop{addrPort(p.up.LocalAddr()), to}
	p.srv.hops.Store(p.onward, nil)
	return nil
}

// sendPreface sends the preface of a stream, and waits for the status byte, if there is one.
func (p *pair) sendPreface(st *link.Stream) error {
	_ = p.up.SetDeadline(time.Now().Add(st.TimeLeft))
	if _, err := p.up.Write(link.AppendStream(nil, st)); err != nil {
		return err
	}
	if st.Kind != link.StreamHTTP {
		var reply [1]byte
		if _, err := io.ReadFull(p.up, reply[:]); err != nil {
			return err
		}
		if reply[0] != link.StreamTaken {
			return fault.Error{Failure: fault.OfReason(link.Reason(reply[0]))}
		}
	}
	return p.up.SetDeadline(time.Time{})
}

func failure(err error) *fault.Failure {
	var refused fault.Error
	switch {
	case errors.As(err, &refused):
		return refused.Failure
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return fault.Deadline
	}
	return fault.Reset
}
