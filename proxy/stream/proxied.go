package stream

import (
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/proxyproto"
)

// clientConn is a connection of a client whose address the connection below does not have.
type clientConn struct {
	conn
	client, destination net.Addr
}

func (c *clientConn) RemoteAddr() net.Addr { return c.client }
func (c *clientConn) LocalAddr() net.Addr  { return c.destination }

// acceptProxied waits for the header of the PROXY protocol from the proxy at down, and then opens
// the stream of its client. Until then the connection has no source that counts.
func (l *Listener) acceptProxied(down *end) {
	proxy := down.RemoteAddr().String()
	if !l.proxies.Load().Contains(loop.PeerAddr(proxy)) {
		down.reset()
		l.srv.worker().RefusedProxy(l.cfg.Load().Name, proxy, proxyproto.ErrUntrusted)
		return
	}
	release := l.reserve(down.LocalAddr(), nil)
	if release == nil {
		down.reset()
		return
	}
	// The stream gets a pair of its own.
	if !l.srv.launch(&pair{srv: l.srv, down: down}, func() { l.readHeader(down, proxy, release) }) {
		release()
	}
}

func (l *Listener) readHeader(down *end, proxy string, release func()) {
	_ = down.SetReadDeadline(time.Now().Add(l.srv.config().Timeouts.Header))
	header, err := proxyproto.Read(down.system())
	_ = down.SetReadDeadline(time.Time{})
	release()
	if err != nil {
		down.reset()
		if err != io.EOF && l.srv.ctx.Err() == nil { // without a byte it was a health check
			l.srv.worker().RefusedProxy(l.cfg.Load().Name, proxy, err)
		}
		return
	}
	client := &end{conn: down.conn, tcp: down.tcp, unix: down.unix}
	if header.Source.IsValid() {
		client.conn = &clientConn{
			conn: down.conn, client: net.TCPAddrFromAddrPort(header.Source), destination: net.TCPAddrFromAddrPort(header.Destination),
		}
	}
	if release = l.reserve(client.LocalAddr(), client.RemoteAddr()); release == nil {
		client.reset()
		return
	}
	l.open(client, release)
}

// proxyHeader returns the header that begins a connection for p to an endpoint of a service, or nil.
func proxyHeader(p *pair, service string) []byte {
	version := 1
	switch p.srv.service(service).ProxyProtocol {
	case config.ProxyProtocolV2:
		version = 2
	case config.ProxyProtocolOff:
		return nil
	}
	return proxyproto.Append(nil, version, proxyproto.Header{
		Source: tcpAddr(p.down.RemoteAddr()), Destination: tcpAddr(p.down.LocalAddr()),
	})
}

// tcpAddr returns the address of a TCP connection, and otherwise the zero value.
func tcpAddr(a net.Addr) netip.AddrPort {
	if tcp, ok := a.(*net.TCPAddr); ok {
		return tcp.AddrPort()
	}
	return netip.AddrPort{}
}
