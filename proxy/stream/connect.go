package stream

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
)

type endpointQuery struct {
	leaser  exchange.Leaser // picks the endpoint and counts the stream
	service string
	direct  *downstream.Direct // connects there instead; nil means to the service
	kind    link.StreamKind    // sent to an endpoint that is another sidecar
	timeout time.Duration      // sent to that sidecar
	host    string             // of the request, for a service whose TLS needs it; else ""
}

// pick is the result of an endpointQuery: a lease with its target, or a failure.
type pick struct {
	lease *exchange.Lease
	at    exchange.Target
	fail  *fault.Failure
}

type refusal struct{ fail *fault.Failure }

func (r refusal) Error() string { return "refused: " + r.fail.Code }

// connect connects p to an endpoint that takes the stream. Unless it fails, the caller must
// close lease, which is nil without a service. linked reports whether the endpoint is another
// sidecar.
func (p *pair) connect(w *endpointQuery) (lease *exchange.Lease, linked bool, fail *fault.Failure) {
	if w.direct != nil {
		return nil, false, (&direct{p, w.direct}).connect()
	}
	picks := make(chan pick, 1)
	w.leaser.Lease(w.service, func(l *exchange.Lease, at exchange.Target, f *fault.Failure) {
		picks <- pick{l, at, f}
	})
	a := p.await(picks)
	if a.fail != nil {
		return nil, false, a.fail
	}
	var last refusal
	for lease = a.lease; ; {
		err := p.open(w, a.at)
		if err == nil {
			return lease, a.at.Link, nil
		}
		if p.isAborted() || p.srv.ctx.Err() != nil {
			lease.Close(false, 0, 0)
			return nil, false, cmp.Or(p.why.Load(), fault.Draining)
		}
		why := fault.Connect
		if errors.As(err, &last) {
			why = last.fail
		}
		lease.Retry(why, err, func(at exchange.Target, f *fault.Failure) { picks <- pick{lease, at, f} })
		a = p.await(picks)
		switch { // after a failure the core has closed the lease, or its loop has stopped
		case a.fail == fault.Connect && last.fail != nil:
			return nil, false, last.fail
		case a.fail != nil:
			return nil, false, a.fail
		}
	}
}

// await waits for the core. The loop of the core may have stopped, so Close ends the wait.
func (p *pair) await(picks <-chan pick) (a pick) {
	select {
	case a = <-picks:
		return a
	case <-p.srv.ctx.Done():
		return pick{fail: fault.Draining}
	}
}

// open connects to an endpoint. To another sidecar it also sends the preface, and waits until
// that sidecar accepts a stream that can't be refused by an HTTP response.
func (p *pair) open(w *endpointQuery, at exchange.Target) error {
	var first []byte
	if !at.Link {
		first = proxyHeader(p, w.service)
	}
	if err := p.dial(at.Addr, w.service, w.serverName(p.srv.service(w.service), at), first); err != nil || !at.Link {
		return err
	}
	err := p.sendPreface(&link.Stream{Kind: w.kind, TimeLeft: w.timeout})
	if err != nil {
		p.closeUp(false)
	}
	return err
}

// serverName returns the name that the endpoint must prove by TLS.
func (w *endpointQuery) serverName(c *config.Service, at exchange.Target) string {
	if c.TLS.ByHost() && w.host != "" {
		return w.host
	}
	return c.TLS.ServerName(at.Host, at.Addr)
}

// dial connects to addr, which must prove name by TLS, and sends first before anything else.
func (p *pair) dial(addr, service, name string, first []byte) error {
	p.at = addr
	ctx, cancel := context.WithTimeout(p.srv.ctx, p.srv.service(service).ConnectTimeout)
	defer cancel()
	sock, err := p.srv.opt.Dial(ctx, addr, service, name, first)
	switch {
	case errors.Is(err, loop.ErrDialQueue):
		return refusal{fault.DialLimit}
	case err != nil:
		return err
	}
	return p.attachUp(endOf(sock))
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
			return refusal{fault.OfReason(link.Reason(reply[0]))}
		}
	}
	return p.up.SetDeadline(time.Time{})
}

func failure(err error) *fault.Failure {
	var r refusal
	switch {
	case errors.As(err, &r):
		return r.fail
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return fault.Deadline
	}
	return fault.Reset
}
