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
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/race"
)

// connector leads the stream of a pair to where it goes. It is used on the goroutine of the stream. That calls one of
//
//	connect          an endpoint of a service, or the host of a request that no route matches (unrouted)
//	reconnect        another endpoint, after the last one has refused the request
//	fetch            the sidecar that has the body of a response
//	dialDestination  the original destination of a redirected connection
//
// connect and reconnect go on with, in this order:
//
//	pick             the core picks an endpoint
//	openFrom         opens the stream at that endpoint, or at the next one that is picked
//	openAt           opens the stream at one endpoint: by openPipe, or by dial and sendPreface
//	openPipe         waits for a connection of the endpoint that carries other streams, too
//	dial             makes a connection
//	sendPreface      says to another sidecar what the connection carries
//
// Each connection ends in pair.attachUp: the pair owns it.
type connector struct {
	p       *pair
	dialled string      // "ip:port" that was dialled last
	at      race.Target // the endpoint of the service that takes the stream; zero if none does
	onward  hop         // in Server.hops until forgetHop; the zero value means none
}

// endpointQuery is what the search for an endpoint needs to know of a stream.
type endpointQuery struct {
	service  string
	unrouted *downstream.Unrouted // connects there instead; nil means to the service
	kind     link.StreamKind      // sent to an endpoint that is another sidecar
	timeout  time.Duration        // sent to that sidecar
	host     string               // of the request, for a service whose TLS needs it; else ""
	message  bool                 // the stream is one HTTP request and its response, which a pipe can carry
}

// serverName returns the name that the endpoint must prove by TLS.
func (q *endpointQuery) serverName(c *config.ServiceTLS, at race.Target) string {
	if c.ByHost() && q.host != "" {
		return q.host
	}
	return c.ServerName(at.Host, at.Addr)
}

// pick is the result of an endpointQuery: a stream with its target, or a failure.
type pick struct {
	stream *race.Stream
	at     race.Target
	fail   *fault.Failure
}

// connect connects the stream to an endpoint that takes it. Unless it fails, the caller must
// close st, which is nil without a service. linked reports whether the endpoint is another
// sidecar.
func (c *connector) connect(q *endpointQuery) (st *race.Stream, linked bool, fail *fault.Failure) {
	if q.unrouted != nil {
		return nil, false, (&unrouted{c, q.unrouted}).connect()
	}
	got := c.pick(func(picked race.Picked) { c.p.opener.Open(q.service, picked) })
	if got.fail != nil {
		return nil, false, got.fail
	}
	returned := false
	defer func() {
		if !returned { // a panic
			got.stream.Close(false, 0, 0)
		}
	}()
	linked, fail = c.openFrom(q, got.stream, got.at)
	returned = true
	if fail != nil {
		return nil, false, fail
	}
	return got.stream, linked, nil
}

// reconnect connects the stream to another endpoint, after the last one refused it with why. If it
// fails, st is closed.
func (c *connector) reconnect(q *endpointQuery, st *race.Stream, why *fault.Failure) (linked bool, fail *fault.Failure) {
	got := c.pick(func(picked race.Picked) { st.Retry(why, nil, picked) })
	if got.fail != nil {
		return false, got.fail
	}
	return c.openFrom(q, st, got.at)
}

// openFrom opens the stream at an endpoint, or at another one if that does not take it. If it fails,
// st is closed.
func (c *connector) openFrom(q *endpointQuery, st *race.Stream, at race.Target) (linked bool, fail *fault.Failure) {
	var last fault.Error
	for {
		err := c.openAt(q, st, at)
		if err == nil {
			c.at = at
			return at.Link, nil
		}
		if c.p.isAborted() || c.p.srv.ctx.Err() != nil {
			st.Close(false, 0, 0)
			return false, cmp.Or(c.p.why.Load(), fault.Draining)
		}
		why := fault.Connect
		if errors.As(err, &last) {
			why = last.Failure
		}
		got := c.pick(func(picked race.Picked) { st.Retry(why, err, picked) })
		switch {
		case got.fail == fault.Connect && last.Failure != nil:
			return false, last.Failure
		case got.fail != nil:
			return false, got.fail
		}
		at = got.at
	}
}

// pick has the core pick an endpoint, by begin, and waits for it. The loop of the core may have stopped, so
// Server.Close ends the wait.
func (c *connector) pick(begin func(picked race.Picked)) (got pick) {
	picks := make(chan pick, 1)
	begin(func(s *race.Stream, at race.Target, f *fault.Failure) { picks <- pick{s, at, f} })
	select {
	case got = <-picks:
		return got
	case <-c.p.srv.ctx.Done():
		return pick{fail: fault.Draining}
	}
}

// openAt connects to an endpoint. To another sidecar it also sends the preface, and waits until
// that sidecar accepts a stream that can't be refused by an HTTP response.
func (c *connector) openAt(q *endpointQuery, st *race.Stream, at race.Target) error {
	if at.Socket != nil {
		return c.openPipe(q, at)
	}
	var first []byte
	if !at.Link {
		first = proxyHeader(c.p, q.service)
	}
	if err := c.dial(st, at.Addr, q.service, q.serverName(st.TLS(), at), first); err != nil || !at.Link {
		return err
	}
	err := c.sendPreface(&link.Stream{Kind: q.kind, TimeLeft: q.timeout})
	if err != nil {
		c.p.closeUp(false)
	}
	return err
}

// openPipe waits until the endpoint's connection takes the stream. The loop bounds that by
// connect_timeout, and says whether a dial failed or no connection had room; twice that time
// is for a loop that is late.
func (c *connector) openPipe(q *endpointQuery, at race.Target) error {
	c.dialled = at.Addr
	up := endOf(at.Socket)
	if !q.message || up == nil || up.pipe == nil {
		at.Socket.Reset()
		return fault.Error{Failure: fault.Unsupported}
	}
	if err := c.p.attachUp(up, endpointID{q.service, at.Addr}); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.p.srv.ctx, 2*c.p.srv.service(q.service).ConnectTimeout)
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

// dial connects to addr of the stream's service, which must prove name by TLS, and sends first before
// anything else.
func (c *connector) dial(st *race.Stream, addr, service, name string, first []byte) error {
	c.dialled = addr
	ctx, cancel := context.WithTimeout(c.p.srv.ctx, c.p.srv.service(service).ConnectTimeout)
	defer cancel()
	sock, err := c.p.srv.opt.Dial(ctx, addr, st.Key(), name, first)
	switch {
	case errors.Is(err, loop.ErrDialQueue):
		return fault.Error{Failure: fault.DialLimit}
	case err != nil:
		return err
	}
	return c.p.attachUp(endOf(sock), endpointID{service, addr})
}

// sendPreface sends the preface of a stream, and waits for the status byte, if there is one.
func (c *connector) sendPreface(st *link.Stream) error {
	up := c.p.up
	_ = up.SetDeadline(time.Now().Add(st.TimeLeft))
	if _, err := up.Write(link.AppendStream(nil, st)); err != nil {
		return err
	}
	if st.Kind != link.StreamHTTP {
		var reply [1]byte
		if _, err := io.ReadFull(up, reply[:]); err != nil {
			return err
		}
		if reply[0] != link.StreamTaken {
			return fault.Error{Failure: fault.OfReason(link.Reason(reply[0]))}
		}
	}
	return up.SetDeadline(time.Time{})
}

// fetch connects to the sidecar that has the body of a response, and asks for it.
func (c *connector) fetch(src *race.StreamSource) error {
	if err := c.dial(src.Stream, src.Addr, src.Service, "", nil); err != nil {
		return err
	}
	return c.sendPreface(&link.Stream{Kind: link.StreamAnswer, TimeLeft: src.Timeout, Token: src.Token})
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
