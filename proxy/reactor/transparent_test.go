package reactor

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/proxy/loop"
)

var elsewhere = netip.MustParseAddrPort("192.0.2.7:8080")

// passed is the arguments of Transparent.Pass.
type passed struct {
	s     loop.Socket
	to    netip.AddrPort
	first string
}

// redirected starts a reactor whose listener treats all connections as redirected from
// to, or as direct if to is the zero value.
func redirected(t *testing.T, wait time.Duration, to netip.AddrPort, guarded bool, accept func() loop.Receiver) (e *Reactor, addr string, pass chan passed) {
	t.Helper()
	e = start(t, Options{Loops: 2})
	e.originalDst = func(*net.TCPConn) netip.AddrPort { return to }
	pass = make(chan passed, 1)
	addr = listen(t, e, ListenOptions{Transparent: &Transparent{
		Wait: wait, Guarded: func() bool { return guarded },
		Pass: func(s loop.Socket, to netip.AddrPort, first []byte) { pass <- passed{s, to, string(first)} },
	}}, accept)
	return e, addr, pass
}

// recording returns streams that send their input and original destination to got after
// an end of line.
func recording(got chan string) func() loop.Receiver {
	return func() loop.Receiver {
		var conn loop.Conn
		all := ""
		return &stream{
			open: func(c loop.Conn) { conn = c },
			data: func(b []byte) {
				if all += string(b); b[len(b)-1] == '\n' {
					got <- conn.OriginalDst().String() + " " + all
				}
			},
		}
	}
}

// TestRedirectedHTTP: a redirected request reaches a loop whole, wherever it is split.
func TestRedirectedHTTP(t *testing.T) {
	const says = "GET /a HTTP/1.1\r\n"
	got := make(chan string, 1)
	_, addr, pass := redirected(t, waitLimit, elsewhere, false, recording(got))
	for i := 1; i <= len(says); i++ {
		nc := dial(t, addr)
		sendSplit(t, nc, says, i)
		select {
		case all := <-got:
			if want := elsewhere.String() + " " + says; all != want {
				t.Errorf("split at %d: the loop got %q, want %q", i, all, want)
			}
		case p := <-pass:
			t.Errorf("split at %d: passed with %q", i, p.first)
			_ = p.s.Close()
		case <-time.After(waitLimit):
			t.Fatal("neither passed nor on a loop")
		}
		nc.Close()
	}
}

// sendSplit writes the first i bytes of says, and the rest when the kernel has delivered
// them.
func sendSplit(t *testing.T, nc *net.TCPConn, says string, i int) {
	t.Helper()
	_ = nc.SetNoDelay(true)
	for _, part := range []string{says[:i], says[i:]} {
		must.Write(t, nc, part)
		time.Sleep(time.Millisecond) // for the split's sake; nothing depends on it
	}
}

// TestRedirectedPass: any other protocol is passed on, wherever its first bytes are
// split, with its half-close.
func TestRedirectedPass(t *testing.T) {
	for _, says := range []string{"PING\r\n", "hello", "GET /a\r\n", "PRI * HTTP/2.0\r\n\r\nSM", "\x16\x03\x01", "GET / HTTP/1"} {
		e, addr, pass := redirected(t, waitLimit, elsewhere, false, echo)
		for i := 1; i <= len(says); i++ {
			nc := dial(t, addr)
			sendSplit(t, nc, says, i)
			_ = nc.CloseWrite()
			p := recv(t, pass, "the connection to pass")
			_ = p.s.SetDeadline(time.Now().Add(waitLimit))
			rest, err := io.ReadAll(p.s)
			if got := p.first + string(rest); p.to != elsewhere || got != says || err != nil {
				t.Errorf("split at %d: passed to %s: %q, %v; want %q", i, p.to, got, err, says)
			}
			if _, err := io.WriteString(p.s, "bye"); err != nil {
				t.Error(err)
			}
			_ = p.s.Close()
			if got, err := io.ReadAll(nc); string(got) != "bye" || err != nil {
				t.Errorf("the client read %q, %v", got, err)
			}
		}
		eventually(t, func() error {
			if st := e.Stats(); st.Inbound != 0 || st.Open != 0 || st.Accepted != int64(len(says)) {
				return fmt.Errorf("%+v", st)
			}
			return nil
		})
	}
}

// TestRedirectedGuarded: with rules, what resembles HTTP reaches a loop as it came, and all else is passed on.
func TestRedirectedGuarded(t *testing.T) {
	for says, onLoop := range map[string]bool{
		"GET / HTTP/1.1\r\n": true, "PRI * HTTP/2.0\r\n": true, "GET  / HTTP/1.1\r\n": true, "GET /\r\n": true, "GET / HTTP/": true, "G": true,
		"PUT\v/\vHTTP/1.1\r\n": true,
		"\r\n":                 true, "": false, "PING\r\n": false, "get key\r\n": false, "\x16\x03\x01": false,
	} {
		wait := 10 * time.Millisecond
		read, got := guardedFirst(t, wait, says)
		for read == "" && says != "" && wait < waitLimit { // on a busy machine the client writes too late
			wait *= 2
			read, got = guardedFirst(t, wait, says)
		}
		if read != says || got != onLoop {
			t.Errorf("%q: read %q, on a loop: %v, want %v", says, read, got, onLoop)
		}
	}
}

// guardedFirst returns what a listener with rules reads first, within wait, from a client that says
// says, and whether a loop got it.
func guardedFirst(t *testing.T, wait time.Duration, says string) (read string, onLoop bool) {
	t.Helper()
	got := make(chan string, 1)
	_, addr, pass := redirected(t, wait, elsewhere, true, func() loop.Receiver {
		return &stream{data: func(b []byte) { got <- string(b) }}
	})
	nc := dial(t, addr)
	defer nc.Close()
	must.Write(t, nc, says)
	select {
	case all := <-got:
		return all, true
	case p := <-pass:
		_ = p.s.Close()
		return p.first, false
	case <-time.After(waitLimit):
		t.Fatal("neither passed nor on a loop")
		return "", false
	}
}

// TestRedirectedSilence: a client that waits for its server to send first is passed on.
func TestRedirectedSilence(t *testing.T) {
	_, addr, pass := redirected(t, 10*time.Millisecond, elsewhere, false, echo)
	nc := dial(t, addr)
	p := recv(t, pass, "the connection to pass")
	defer p.s.Close()
	if p.first != "" {
		t.Errorf("first is %q", p.first)
	}
	_ = p.s.SetWriteDeadline(time.Now().Add(waitLimit)) // no read deadline may be left
	must.Write(t, p.s, "220 ready\r\n")
	banner := make([]byte, len("220 ready\r\n"))
	if _, err := io.ReadFull(nc, banner); err != nil || string(banner) != "220 ready\r\n" {
		t.Errorf("the client read %q, %v", banner, err)
	}
	must.Write(t, nc, "x")
	if _, err := io.ReadFull(p.s, banner[:1]); err != nil {
		t.Errorf("reading on: %v", err)
	}
}

// TestNotRedirected: a connection to the listener's own address reaches a loop in any
// protocol, and has no original destination.
func TestNotRedirected(t *testing.T) {
	_, addr, _ := redirected(t, waitLimit, netip.AddrPort{}, false, echo)
	if got := ask(t, dial(t, addr), "PING\r\n"); got != "PING\r\n" {
		t.Errorf("got %q", got)
	}
}

// TestOriginalDstOfDirect: the kernel has no original destination for a connection that
// was not redirected. TestOriginalDst has redirected ones.
func TestOriginalDstOfDirect(t *testing.T) {
	for _, at := range []string{"127.0.0.1:0", "[::1]:0", "[::]:0"} {
		ln := must.ListenOn(t, "tcp", at)
		dial(t, ln.Addr().String())
		nc, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		if to := originalDst(nc.(*net.TCPConn)); to.IsValid() {
			t.Errorf("%s: %s", at, to)
		}
	}
}

// TestStopDuringDetection: Stop does not wait for clients that send nothing.
func TestStopDuringDetection(t *testing.T) {
	e := start(t, Options{})
	asked, pass := make(chan struct{}), make(chan loop.Socket, 1)
	e.originalDst = func(*net.TCPConn) netip.AddrPort { close(asked); return elsewhere }
	dial(t, listen(t, e, ListenOptions{Transparent: &Transparent{
		Wait: time.Hour, Guarded: func() bool { return false }, Pass: func(s loop.Socket, _ netip.AddrPort, _ []byte) { pass <- s },
	}}, echo))
	recv(t, asked, "the detection")
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	if err := e.Stop(ctx); err != nil {
		t.Error(err)
	}
	_ = recv(t, pass, "the connection to pass").Close()
}
