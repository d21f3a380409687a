package stream

import (
	"net/netip"

	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/telemetry/accesslog"
)

// passThrough is a connection that was redirected here and is passed on to its original
// destination. Its protocol is unknown, so it may be idle for any time; the kernel's keepalive
// detects a peer that is gone.
type passThrough struct {
	*pair
	connector connector
	relay     relay
	listener  string // name of the listener that accepted it
	to        netip.AddrPort
	first     []byte // bytes that were read already
}

// Pass implements downstream.Streams.
func (s *Server) Pass(listener string, client loop.Socket, to netip.AddrPort, first []byte) {
	if p := s.newPair(client); p != nil {
		through := &passThrough{
			pair: p, connector: connector{p: p}, relay: relay{p: p, guarded: s.opt.Process.Generation().Guarded()},
			listener: listener, to: to, first: first,
		}
		s.launch(p, through.run)
	}
}

func (p *passThrough) run() {
	early := newInput(p.srv.opt.Process, p.first)
	p.first = nil
	defer early.free()
	defer p.connector.forgetHop()
	worker := p.srv.worker()
	from := shard.Client{Listener: p.listener, Addr: p.down.RemoteAddr().String()}
	record := worker.StreamRecord(from.Listener, from.Addr, "")
	end := accesslog.StreamEnd{Cut: true, Endpoint: p.to.String()} // of a panic
	defer func() { record.End(end) }()
	if fail := p.connector.dialDestination(p.to); fail != nil {
		worker.Passed(from, fail)
		end.Failure, end.Cut = fail, false
		p.abort() // as if the client had been refused
		return
	}
	worker.Passed(from, nil)
	in, out := p.relay.run(early)
	fail := p.why.Load()
	if fail != nil {
		worker.Passed(from, fail)
	}
	end.Failure, end.Cut, end.In, end.Out = fail, p.isAborted(), in, out
}
