package stream

import (
	"context"
	"net"
	"net/netip"
	"time"

	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/telemetry/accesslog"
)

// passTimeout bounds connecting to where a client was going, who was told that it
// is connected already and waits no more.
const passTimeout = 10 * time.Second

// passage is a connection that was redirected here and goes on to where it was
// going. Nothing is known of what it carries, so it may be idle for as long as it
// likes; the kernel's keepalive finds a peer that is gone.
type passage struct {
	*pair
	listener string // where it came in
	to       netip.AddrPort
	first    []byte
}

// hop is a connection by its addresses, as the kernel's connection tracking sees
// it wherever it is redirected.
type hop struct{ from, to netip.AddrPort }

// Pass implements downstream.Streams.
func (s *Server) Pass(listener string, client loop.Socket, to netip.AddrPort, first []byte) {
	down := endOf(client)
	if down == nil {
		_ = client.Close()
		return
	}
	p := &passage{pair: &pair{srv: s, down: down}, listener: listener, to: to, first: first}
	s.start(p.pair, p.run)
}

func (p *passage) run() {
	early := p.srv.early(p.first)
	p.first = nil
	defer early.free()
	worker := p.srv.worker()
	trail := worker.StreamRecord(p.listener, p.down.RemoteAddr().String(), "")
	onward, fail := p.reach()
	if fail != nil {
		worker.Passed(fail)
		trail.End(accesslog.StreamEnd{Failure: fail, Endpoint: p.to.String()})
		p.cut() // as if the client had been refused
		return
	}
	defer p.srv.hops.remove(onward)
	worker.Passed(nil)
	in, out := p.relay(early)
	trail.End(accesslog.StreamEnd{Cut: p.isCut(), Endpoint: p.to.String(), In: in, Out: out})
}

// reach joins where the client was going.
func (p *passage) reach() (onward hop, fail *fault.Failure) {
	if p.srv.hops.has(hop{addrPort(p.down.RemoteAddr()), p.to}) {
		p.srv.opt.Logger.Warn("a connection of the sidecar's own was redirected to it; exclude its user id",
			"destination", p.to.String())
		return hop{}, fault.Loop
	}
	ctx, cancel := context.WithTimeout(p.srv.ctx, passTimeout)
	defer cancel()
	sock, err := p.srv.opt.Dial(ctx, p.to.String(), "")
	if err == nil {
		err = p.join(endOf(sock))
	}
	if err != nil {
		p.srv.opt.Logger.Debug("original destination not connected", "destination", p.to.String(), "error", err)
		return hop{}, fault.Connect
	}
	// Before a byte is sent: if the kernel has redirected this connection too,
	// the next to pass it finds it here.
	onward = hop{addrPort(p.up.LocalAddr()), p.to}
	p.srv.hops.add(onward)
	return onward, nil
}

func addrPort(a net.Addr) netip.AddrPort {
	at := a.(*net.TCPAddr).AddrPort()
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}
