package stream

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"
)

// clients connects clients to an address of a sidecar.
type clients struct {
	t    *testing.T
	addr string
}

// dial connects a client.
func (c *clients) dial() *net.TCPConn {
	c.t.Helper()
	return c.dialFrom("127.0.0.1")
}

// dialFrom connects a client from an address of loopback.
func (c *clients) dialFrom(ip string) *net.TCPConn {
	c.t.Helper()
	nc, err := dialFrom(ip, c.addr)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(waitLimit))
	return nc.(*net.TCPConn)
}

// dialTo connects a client to addr, which further clients use, too.
func (c *clients) dialTo(addr string) *net.TCPConn {
	c.t.Helper()
	c.addr = addr
	return c.dial()
}

func dialFrom(ip, addr string) (net.Conn, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}
	return d.Dial("tcp", addr)
}

// pair connects a client and returns both ends of its stream.
func (c *clients) pair(app *app) (client, server *net.TCPConn) {
	c.t.Helper()
	client = c.dial()
	return client, receive(c.t, app.conns, "the application to get the connection")
}

// wantRefused checks that a client is reset.
func (c *clients) wantRefused() {
	c.t.Helper()
	c.wantRefusedFrom("127.0.0.1")
}

// wantRefusedFrom is wantRefused for a client at an address of loopback.
func (c *clients) wantRefusedFrom(ip string) {
	c.t.Helper()
	c.wantResetAfter(ip, "")
}

// wantResetAfter is wantRefusedFrom for a client that says something first. Connecting or writing may already
// return the reset.
func (c *clients) wantResetAfter(ip, says string) {
	c.t.Helper()
	nc, err := dialFrom(ip, c.addr)
	if errors.Is(err, syscall.ECONNRESET) {
		return
	}
	if err != nil {
		c.t.Fatal(err)
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(waitLimit))
	if _, err := io.WriteString(nc, says); errors.Is(err, syscall.ECONNRESET) {
		return
	}
	wantReset(c.t, "a client that can't be served", nc)
}

// wantReset checks that nc ends with a reset.
func wantReset(t *testing.T, who string, nc net.Conn) {
	t.Helper()
	if _, err := io.ReadAll(nc); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%s read to %v, want a reset", who, err)
	}
}
