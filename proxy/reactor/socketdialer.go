package reactor

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"

	"github.com/remora-proxy/remora/proxy/loop"
)

// SocketDialer connects Sockets, which are on no loop. maxDials does not limit them.
type SocketDialer struct{ reactor *Reactor }

// Dial connects to addr ("ip:port" or a Unix socket) of a service, with TLS if Options.DialTLS has a
// configuration for its key; name is as of a loop.Named. It sends first before anything else, in plain text.
// It blocks until the connection is ready for use, ctx ends, or the Reactor is stopped (ErrStopped). The caller
// owns the Socket, which may outlive the Reactor. Any goroutine may call Dial.
func (d *SocketDialer) Dial(ctx context.Context, addr, key, name string, first []byte) (loop.Socket, error) {
	r := d.reactor
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.ctx, cancel)()
	at, ok := r.connections.reserveDial()
	err := loop.ErrDialQueue
	var s loop.Socket
	if ok {
		s, err = d.connect(ctx, addr, key, name, first, at)
	}
	switch {
	case err == nil:
		r.count.dialled.Add(1)
		return s, nil
	case r.ctx.Err() != nil:
		err = ErrStopped
	}
	at.release()
	if !errors.Is(ctx.Err(), context.Canceled) { // by the caller, or by the end of the reactor
		r.count.dialErrors.Add(1)
	}
	return nil, fmt.Errorf("reactor: dial: %w", err)
}

// connect connects a Socket with the reservation at.
func (d *SocketDialer) connect(ctx context.Context, addr, key, name string, first []byte, at reservation) (loop.Socket, error) {
	r := d.reactor
	config, other := r.endpoints.at(key, addr, name)
	var nd net.Dialer
	nd.SetMultipathTCP(false)
	nc, err := dialFirst(ctx, &nd, addr, other)
	if err != nil {
		return nil, err
	}
	raw := nc.(rawConn)
	if len(first) > 0 { // a write of nothing would fail if the endpoint has sent its bytes and closed
		if _, err := raw.Write(first); err != nil { // the kernel has room for it
			_ = raw.Close()
			return nil, err
		}
	}
	if config == nil {
		return newSocket(&r.connections, raw, nil, at, nil), nil
	}
	below := &wire{nc: dialled{raw, r.handshakes.computing}}
	var over *tls.Conn
	err = r.panics.Guard(func() error {
		over = tls.Client(below, config())
		return r.handshakes.do(func() error { return over.HandshakeContext(ctx) })
	})
	if err != nil {
		_ = raw.Close()
		return nil, r.tls.failDial(r.ctx, addr, err)
	}
	r.tls.succeed(over)
	below.nc, below.handshakeDone = raw, true
	return newSocket(&r.connections, raw, over, at, nil), nil
}
