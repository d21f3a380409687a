package http2

import (
	"errors"
	"slices"

	"github.com/remora-proxy/remora/protocol"
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

// OpenStream implements race.StreamOpener.
func (p *pool) OpenStream(shard.Client) loop.Socket {
	s, socket := p.newTunnel()
	if p.roomy() != nil {
		s.openPipe()
	} else {
		p.waitTunnel(s)
	}
	return socket
}

func (p *pool) newTunnel() (*call, loop.Socket) {
	s := p.free.take()
	f := &flow{call: s, tunnel: &tunnel{pool: p}}
	s.flow = f
	pipe, socket := p.shard.NewPipe(p.endpoint.LB.Addr, f.ready)
	f.pipe = pipe
	f.to.InitResponse(pipe)
	f.from.InitRequest(pipe, p.shard.UnlimitedBody)
	return s, socket
}

// Client implements byname.Request.
func (t *tunnel) Client() shard.Client { return t.by }

func (s *call) openPipe() {
	if !s.flow.opened {
		s.flow.opened = true
		s.flow.pipe.Open()
	}
}

// failDial fails a tunnel that waits for a connection, or for room on one.
func (s *call) failDial(f *fault.Failure) { s.dropTunnel(fault.Error{Failure: f}) }

// dropTunnel ends a tunnel that has no connection.
func (s *call) dropTunnel(err error) {
	p, f := s.flow.pool, s.flow
	f.call = nil
	f.pipe.Close(err)
	if i := slices.Index(p.tunnels, s); i >= 0 {
		p.tunnels = slices.Delete(p.tunnels, i, i+1)
	}
	p.free.put(s)
}

// openTunnel is called when there is room for a tunnel that waits.
func (c *conn) openTunnel(s *call) {
	s.openPipe()
	if s.flow.began {
		c.sendTunnel(s)
	}
}

// placeTunnel gives a tunnel whose head has arrived a connection.
func (s *call) placeTunnel() {
	f, p := s.flow, s.flow.pool
	if st := f.pipe.State(); st == loop.PipeReset || st == loop.PipeClosed {
		s.dropTunnel(nil)
		return
	}
	if f.began {
		return // it waits for room
	}
	switch f.from.Next() {
	case httpstream.Pending:
		return
	case httpstream.Head:
	default:
		s.dropTunnel(nil)
		return
	}
	f.began = true
	if string(f.from.Request.Method) == "CONNECT" {
		s.dropTunnel(errConnect)
		return
	}
	if protocol.LoginOfRequest(f.from.Request.Headers) != protocol.NoLogin {
		s.failDial(fault.ConnectionLogin)
		return
	}
	if f.secure != nil {
		next, _ := f.secure.For(f.from.Request.Authority, f.tunnel).(*pool)
		if next == nil {
			s.failDial(fault.Connect)
			return
		}
		p, f.pool = next, next
	}
	p.place(s)
}

// place sends a tunnel whose head is known, or lets it wait for room.
func (p *pool) place(s *call) {
	if c := p.roomy(); c != nil {
		c.sendTunnel(s)
		return
	}
	p.waitTunnel(s)
}

// waitTunnel queues a tunnel in the order of arrival.
func (p *pool) waitTunnel(s *call) {
	s.flow.waits = p.shard.Loop.Now()
	p.tunnels = append(p.tunnels, s)
	p.watchWaiting()
	p.dialMore()
}

// sendTunnel begins the stream of a tunnel.
func (c *conn) sendTunnel(s *call) {
	f := s.flow
	req := &f.from.Request
	f.toHead = string(req.Method) == "HEAD"
	if protocol.IsGRPC(req.Headers) {
		req.Headers = append(req.Headers, trailersWanted)
	}
	if f.from.NoBody() {
		c.adopt(s, c.h2.Request(req, c.scheme(), nil))
	} else {
		c.adopt(s, c.h2.RequestHead(req, c.scheme(), f.from.Length, f.from.ExpectContinue))
	}
	s.pump()
	c.schedule(len(c.calls) == 1)
}

// pump sends what the goroutine has written, as far as the codec takes it.
func (s *call) pump() {
	f, c := s.flow, s.c
	if f.tunnel == nil || s.st == nil {
		return
	}
	for {
		switch f.from.Next() {
		case httpstream.Piece:
			b := f.from.Piece()
			n := c.h2.Send(s.st, b)
			f.from.Consume(n)
			if c.shard.Loop.Defer(&c.out); n < len(b) {
				return // OnWritable follows
			}
		case httpstream.End:
			c.h2.Finish(s.st, f.from.Trailers())
			c.shard.Loop.Defer(&c.out)
			return
		case httpstream.Broken:
			s.reset(http2.Cancel)
			s.leaveFlow(nil)
			c.shard.Loop.Defer(&c.out)
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
	t.flow.secure, t.flow.by = s, from
	t.openPipe()
	return socket
}
