package stream

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
)

// wish is what a stream needs an endpoint for.
type wish struct {
	leaser  exchange.Leaser // that keeps the account
	service string
	kind    link.StreamKind // where the endpoint is another sidecar
	timeout time.Duration   // that one is given
}

// answer is what the core says to a request for an endpoint.
type answer struct {
	lease *exchange.Lease
	at    exchange.Target
	fail  *fault.Failure
}

// refusal is the other sidecar's reason not to take a stream.
type refusal struct{ fail *fault.Failure }

func (r refusal) Error() string { return "refused: " + r.fail.Code }

// connect joins an endpoint that takes the stream. Without a Failure there is a
// Lease to close. linked tells whether it is another sidecar.
func (p *pair) connect(w *wish) (lease *exchange.Lease, linked bool, fail *fault.Failure) {
	answers := make(chan answer, 1)
	w.leaser.Lease(w.service, func(l *exchange.Lease, at exchange.Target, f *fault.Failure) {
		answers <- answer{l, at, f}
	})
	a := p.await(answers)
	if a.fail != nil {
		return nil, false, a.fail
	}
	var last refusal
	for lease = a.lease; ; {
		err := p.open(w, a.at)
		if err == nil {
			return lease, a.at.Link, nil
		}
		if p.isCut() || p.srv.ctx.Err() != nil {
			lease.Close(false, 0, 0)
			return nil, false, fault.Draining
		}
		why := fault.Connect
		if errors.As(err, &last) {
			why = last.fail
		}
		lease.Retry(why, err, func(at exchange.Target, f *fault.Failure) { answers <- answer{lease, at, f} })
		a = p.await(answers)
		switch { // on a failure the core has closed the lease, or its loop is gone
		case a.fail == fault.Connect && last.fail != nil:
			return nil, false, last.fail
		case a.fail != nil:
			return nil, false, a.fail
		}
	}
}

// await waits for the core, whose loop may have stopped.
func (p *pair) await(answers <-chan answer) (a answer) {
	select {
	case a = <-answers:
		return a
	case <-p.srv.ctx.Done():
		return answer{fail: fault.Draining}
	}
}

// open connects to an endpoint; another sidecar is told what comes, and asked
// whether it takes what can't be refused in words of its own.
func (p *pair) open(w *wish, at exchange.Target) error {
	if err := p.dial(at.Addr, w.service); err != nil || !at.Link {
		return err
	}
	err := p.greet(&link.Stream{Kind: w.kind, TimeLeft: w.timeout})
	if err != nil {
		p.part(false)
	}
	return err
}

func (p *pair) dial(addr, service string) error {
	p.at = addr
	ctx, cancel := context.WithTimeout(p.srv.ctx, p.srv.service(service).ConnectTimeout)
	defer cancel()
	sock, err := p.srv.opt.Dial(ctx, addr, service)
	if err != nil {
		return err
	}
	return p.join(endOf(sock))
}

// greet sends the preface, and waits for the reply where there is one.
func (p *pair) greet(st *link.Stream) error {
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

// failure says what an error of the endpoint's connection means.
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
