package http2

import (
	"errors"
	"slices"
	"time"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/protocol/http2"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/mux/httpstream"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/service"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/upstream/byname"
)

// errConnect is the error of a pipe that never becomes a stream.
var errConnect = errors.New("proxy: the endpoint speaks HTTP/2, and takes no CONNECT and no upgrade")

var (
	_ race.StreamOpener = (*pool)(nil)
	_ race.StreamOpener = (*secure)(nil)
)

// tunnel is a stream whose request comes by the pipe, too. Its call has no connection before the head of the request
// has arrived, and there is room for it.
type tunnel struct {
	flow
	pool   *pool
	secure *secure           // that has the pool for the request's Host; nil without TLS
	by     shard.Client      // of secure: who the request came from
	from   httpstream.Reader // the request
	began  bool              // the head of the request has arrived
	toHead bool              // the request is a HEAD
	waits  time.Duration     // since when it waits for room, on the loop's clock
	res    protocol.Response
	text   *bytebufferpool.ByteBuffer // of its head, while that is decoded and passed on

	interim   int  // interim responses that were passed on
	responded bool // the head of a response has begun to arrive
}

// newResponse provides the memory for the head of a response.
func (t *tunnel) newResponse(on *shard.Shard) (*protocol.Response, *bytebufferpool.ByteBuffer) {
	t.responded, t.text = true, on.Buffers.Get(0)
	return &t.res, t.text
}

// releaseHead gives the memory of a head back that was passed on, or will not be.
func (t *tunnel) releaseHead(on *shard.Shard) {
	t.res = protocol.Response{}
	on.Buffers.Release(&t.text)
}

// onHead passes the head of a response on.
func (t *tunnel) onHead(end bool) {
	if !end {
		forgetLength(&t.res)
	}
	sent := t.to.Response(&t.res, t.toHead, end)
	t.releaseHead(t.call.c.shard)
	switch {
	case !sent:
		t.call.reset(http2.Cancel)
		t.close(errReset)
	case end:
		t.onEnd(nil)
	}
}

// onInterim passes an interim response on, unless there were many and the request does not wait for this one with its body.
func (t *tunnel) onInterim() {
	awaited := t.res.Status == 100 && t.from.ExpectContinue
	if awaited {
		t.from.ExpectContinue = false
	}
	if t.interim < http1.MaxInterim || awaited {
		t.interim++
		t.to.Interim(&t.res)
	}
	t.releaseHead(t.call.c.shard)
}

// OpenStream implements race.StreamOpener.
func (p *pool) OpenStream(shard.Client) loop.Socket {
	t, socket := p.newTunnel()
	if p.roomy() != nil {
		t.pipe.Open()
	} else {
		p.waitTunnel(t)
	}
	return socket
}

func (p *pool) newTunnel() (*tunnel, loop.Socket) {
	t := &tunnel{flow: flow{call: p.free.take()}, pool: p}
	t.tunnel, t.call.flow = t, &t.flow
	pipe, socket := p.shard.NewPipe(p.endpoint.LB.Addr, t.ready)
	t.pipe = pipe
	t.to.InitResponse(pipe)
	t.from.InitRequest(pipe, p.shard.UnlimitedBody)
	return t, socket
}

// Client implements byname.Request.
func (t *tunnel) Client() shard.Client { return t.by }

// failDial fails a tunnel that waits for a connection, or for room on one.
func (t *tunnel) failDial(f *fault.Failure) { t.drop(fault.Error{Failure: f}) }

// drop ends a tunnel that has no connection.
func (t *tunnel) drop(err error) {
	p, s := t.pool, t.call
	t.call = nil
	t.pipe.Close(err)
	if i := slices.Index(p.tunnels, t); i >= 0 {
		p.tunnels = slices.Delete(p.tunnels, i, i+1)
	}
	p.free.put(s)
}

// onRoom is called when c has room for a tunnel that waits.
func (t *tunnel) onRoom(c *conn) {
	t.pipe.Open() // the goroutine may write the request
	if t.began {
		t.send(c)
	}
}

// place gives a tunnel whose head has arrived a connection, or lets it wait for room.
func (t *tunnel) place() {
	if st := t.pipe.State(); st == loop.PipeReset || st == loop.PipeClosed {
		t.drop(nil)
		return
	}
	if t.began {
		return // it waits for room
	}
	switch t.from.Next() {
	case httpstream.Pending:
		return
	case httpstream.Head:
	default:
		t.drop(nil)
		return
	}
	t.began = true
	if string(t.from.Request.Method) == "CONNECT" {
		t.drop(errConnect)
		return
	}
	if protocol.LoginOfRequest(t.from.Request.Headers) != protocol.NoLogin {
		t.failDial(fault.ConnectionLogin)
		return
	}
	if t.secure != nil {
		next, _ := t.secure.For(t.from.Request.Authority, t).(*pool)
		if next == nil {
			t.failDial(fault.Connect)
			return
		}
		t.pool = next
	}
	if c := t.pool.roomy(); c != nil {
		t.send(c)
		return
	}
	t.pool.waitTunnel(t)
}

// waitTunnel queues a tunnel in the order of arrival.
func (p *pool) waitTunnel(t *tunnel) {
	t.waits = p.shard.Loop.Now()
	p.tunnels = append(p.tunnels, t)
	p.watchWaiting()
	p.dialMore()
}

// send begins the stream of a tunnel.
func (t *tunnel) send(c *conn) {
	req := &t.from.Request
	t.toHead = string(req.Method) == "HEAD"
	if protocol.IsGRPC(req.Headers) {
		req.Headers = append(req.Headers, trailersWanted)
	}
	if t.from.NoBody() {
		c.adopt(t.call, c.h2.Request(req, c.scheme(), nil))
	} else {
		c.adopt(t.call, c.h2.RequestHead(req, c.scheme(), t.from.Length, t.from.ExpectContinue))
	}
	c.shard.Loop.Defer(&c.out)
	t.pump()
}

// pump sends what the goroutine has written, as far as the codec takes it.
func (t *tunnel) pump() {
	s := t.call
	c := s.c
	for {
		switch t.from.Next() {
		case httpstream.Piece:
			b := t.from.Piece()
			n := c.h2.Send(s.st, b)
			t.from.Consume(n)
			if c.shard.Loop.Defer(&c.out); n < len(b) {
				return // OnWritable follows
			}
		case httpstream.End:
			c.h2.Finish(s.st, t.from.Trailers())
			c.shard.Loop.Defer(&c.out)
			return
		case httpstream.Broken:
			s.reset(http2.Cancel)
			t.close(nil)
			return
		default:
			return
		}
	}
}

// secure is the pools of an endpoint with TLS.
type secure struct {
	*byname.Pools
	anon *pool // reads the heads of tunnels whose name the request tells
}

func newSecure(s *service.Service, e *service.Endpoint, free *freeCalls) race.Upstream {
	return &secure{
		Pools: byname.New(s, e, func(name string) byname.Pool { return newPool(s, e, free, name) }),
		anon:  newPool(s, e, free, ""),
	}
}

// OpenStream implements race.StreamOpener. The name that the endpoint must prove may be the
// Host of the request, so the pipe is open before there is a connection.
func (s *secure) OpenStream(from shard.Client) loop.Socket {
	t, socket := s.anon.newTunnel()
	t.secure, t.by = s, from
	t.pipe.Open()
	return socket
}
