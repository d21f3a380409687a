package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/internal/syncbuffer"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/reactor"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// TestDirectTarget: the host of a direct request is resolved and compared in one form.
func TestDirectTarget(t *testing.T) {
	for authority, want := range map[string]string{
		"a.test": "a.test 80", "A.Test:81": "a.test 81", "a.test.:443": "a.test 443", "%61.test": "a.test 80", "a.test:": "a.test 80",
		"[0::1]:81": "::1 81", "[::ffff:127.0.0.1]": "127.0.0.1 80", "127.0.0.1.:81": "127.0.0.1 81", "a.test..": "a.test.. 80",
	} {
		host, port := (&unrouted{nil, &downstream.Unrouted{Authority: authority}}).target()
		if got := fmt.Sprint(host, " ", port); got != want {
			t.Errorf("%s: %s, want %s", authority, got, want)
		}
	}
}

// TestDirectFails: a failure of a direct stream is counted once, and the client gets a response
// unless it has one. A listener that lets nothing out, as after a reload, refuses.
func TestDirectFails(t *testing.T) {
	a := newApp(t)
	dead := refusingAddr(t)
	for _, c := range []struct {
		name     string
		listener string
		to       string // of the original destination if it begins with "to "
		kind     stats.StreamKind
		opened   bool
		heard    string // empty means a reset
		code     string
		log      string // empty means that nothing is logged
	}{
		{"server that closes", "out", a.addr, stats.StreamWebSocket, false, "HTTP/1.1 502 Bad Gateway\r\n", "upstream-reset", ""},
		{"server by name that closes", "out", strings.Replace(a.addr, "127.0.0.1", "LocalHost", 1), stats.StreamWebSocket, false, "HTTP/1.1 502 Bad Gateway\r\n", "upstream-reset", ""},
		{"original destination that closes", "in", "to " + a.addr, stats.StreamWebSocket, false, "HTTP/1.1 502 Bad Gateway\r\n", "upstream-reset", ""},
		{"dead original destination", "in", "to " + dead, stats.StreamWebSocket, false, "HTTP/1.1 502 Bad Gateway\r\n", "upstream-connect", "original destination not connected"},
		{"dead server", "out", dead, stats.StreamWebSocket, false, "HTTP/1.1 502 Bad Gateway\r\n", "upstream-connect", "host of a direct request not connected"},
		{"dead server of another family", "six", strings.Replace(dead, "127.0.0.1", "LocalHost", 1), stats.StreamConnect, false, "HTTP/1.1 502 Bad Gateway\r\n", "upstream-connect", "host of a direct request not connected"},
		{"dead server of a CONNECT", "out", dead, stats.StreamConnect, false, "HTTP/1.1 502 Bad Gateway\r\n", "upstream-connect", "host of a direct request not connected"},
		{"dead server of a tunnel", "out", dead, stats.StreamConnect, true, "", "upstream-connect", "host of a direct request not connected"},
		{"host without an address", "out", "a..test", stats.StreamConnect, false, "HTTP/1.1 502 Bad Gateway\r\n", "unresolved", "host of a direct request not resolved"},
		{"listener that refuses", "in", a.addr, stats.StreamConnect, false, "HTTP/1.1 403 Forbidden\r\n", "direct-refused", "direct request refused"},
		{"no such listener", "gone", a.addr, stats.StreamConnect, true, "", "direct-refused", "direct request refused"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := startSidecar(t, `
admin: {address: ""}
access_log: {path: /log}
listeners:
  - {name: out, address: "127.0.0.1:0", protocol: http, unrouted: direct, direct: {allow: [127.0.0.1]}}
  - {name: six, address: "127.0.0.1:0", protocol: http, unrouted: direct, direct: {allow: ["::1"]}}
  - {name: in, address: "127.0.0.1:0", protocol: http}
routes: [{match: {host: app}, service: app}]
services: {app: {discover: static, endpoints: ["127.0.0.1:1"], protocol: http}}`, reactor.Options{})
			log := new(syncbuffer.Buffer)
			s.srv.opt.Logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
			to := &downstream.Unrouted{Listener: c.listener, Authority: c.to}
			if original, ok := strings.CutPrefix(c.to, "to "); ok {
				to.To = netip.MustParseAddrPort(original)
			}
			client := s.dialTo(acceptEach(s.t, func(nc *net.TCPConn) {
				_, _ = io.ReadFull(nc, make([]byte, 1)) // so that no reset comes before dialTo returns
				s.srv.Request(socket{nc}, &downstream.StreamRequest{
					Kind: c.kind, Opener: s.srv.worker(), Timeout: waitLimit, Minor: 1, Opened: c.opened,
					Unrouted: to, Head: []byte("GET / HTTP/1.1\r\n\r\n"),
					Record: s.srv.worker().StreamRecord(c.listener, "client", ""),
				})
			}))
			_, _ = io.WriteString(client, "x")
			if c.code == "upstream-reset" {
				server := receive(t, a.conns, "the connection")
				wantRead(t, "the server", server, "GET / HTTP/1.1\r\n\r\n")
				server.Close()
			}
			if c.heard == "" {
				wantReset(t, "the client", client)
			} else {
				wantRead(t, "the client", client, c.heard)
				_, _ = io.Copy(io.Discard, client)
			}
			client.Close()
			s.counts.wantFailure(c.code)
			dialled := strings.Replace(strings.TrimPrefix(c.to, "to "), "LocalHost", "127.0.0.1", 1)
			switch {
			case c.code == "unresolved":
				dialled = ""
			case c.listener == "six":
				dialled = strings.Replace(dialled, "127.0.0.1", "[::1]", 1)
			}
			if l := s.log.line(0); l.Endpoint != dialled || l.Error != c.code {
				t.Errorf("%+v, want the endpoint %q", l, dialled)
			}
			if text := log.String(); (text != "") != (c.log != "") || !strings.Contains(text, c.log) {
				t.Errorf("the log has %q, want %q", text, c.log)
			}
		})
	}
}

// TestSecondAddress: a host is reached at another of its addresses if the first refuses. The log has the one that was reached.
func TestSecondAddress(t *testing.T) {
	a := newApp(t)
	s := startSidecar(t, `
admin: {address: ""}
access_log: {path: /log}
listeners: [{name: out, address: "127.0.0.1:0", protocol: http, unrouted: direct, direct: {allow: [127.0.0.1, "::1"]}}]
routes: [{match: {host: app}, service: app}]
services: {app: {discover: static, endpoints: ["127.0.0.1:1"], protocol: http}}`, reactor.Options{})
	s.srv.opt.Dial = func(_ context.Context, addr, _, _ string, _ []byte) (loop.Socket, error) {
		if !strings.HasPrefix(addr, "[::1]") {
			return nil, errors.New("refused")
		}
		nc, err := net.Dial("tcp", a.addr) // this host may have no IPv6
		if err != nil {
			return nil, err
		}
		return socket{nc.(*net.TCPConn)}, nil
	}
	client := s.dialTo(acceptEach(t, func(nc *net.TCPConn) {
		s.srv.Request(socket{nc}, &downstream.StreamRequest{
			Kind: stats.StreamConnect, Opener: s.srv.worker(), Timeout: waitLimit, Minor: 1, Record: s.srv.worker().StreamRecord("out", "client", ""),
			Unrouted: &downstream.Unrouted{Listener: "out", Authority: "localhost:1234"},
		})
	}))
	wantRead(t, "the client", client, downstream.Connected)
	client.Close()
	receive(t, a.conns, "the connection").Close()
	s.counts.waitNoStreams()
	if l := s.log.line(0); l.Endpoint != "[::1]:1234" {
		t.Errorf("%+v", l)
	}
}

// TestOrdinaryAddress: direct.allow with a network lets clients reach the addresses in it that are not this host's.
func TestOrdinaryAddress(t *testing.T) {
	a := newApp(t)
	s := startSidecar(t, `
admin: {address: ""}
listeners: [{name: out, address: "127.0.0.1:0", protocol: http, unrouted: direct, direct: {allow: [8.8.8.0/24]}}]
routes: [{match: {host: app}, service: app}]
services: {app: {discover: static, endpoints: ["127.0.0.1:1"], protocol: http}}`, reactor.Options{})
	dialled := make(chan string, 1)
	s.srv.opt.Dial = func(_ context.Context, addr, _, _ string, _ []byte) (loop.Socket, error) {
		dialled <- addr
		nc, err := net.Dial("tcp", a.addr)
		if err != nil {
			return nil, err
		}
		return socket{nc.(*net.TCPConn)}, nil
	}
	client := s.dialTo(acceptEach(t, func(nc *net.TCPConn) {
		s.srv.Request(socket{nc}, &downstream.StreamRequest{
			Kind: stats.StreamConnect, Opener: s.srv.worker(), Timeout: waitLimit, Minor: 1, Unrouted: &downstream.Unrouted{Listener: "out", Authority: "8.8.8.8:1234"},
		})
	}))
	wantRead(t, "the client", client, downstream.Connected)
	if got := receive(t, dialled, "the dial"); got != "8.8.8.8:1234" {
		t.Errorf("%s is dialled", got)
	}
	client.Close()
	receive(t, a.conns, "the connection").Close()
	s.counts.waitNoStreams()
}

// TestCutWhileDialled: a direct stream that is cut while its host is dialled fails once, with the reason of the cut.
func TestCutWhileDialled(t *testing.T) {
	for _, original := range []bool{false, true} {
		for _, refused := range []bool{false, true} {
			a := newApp(t)
			s := startSidecar(t, `
admin: {address: ""}
listeners: [{name: out, address: "127.0.0.1:0", protocol: http, unrouted: direct, direct: {allow: [127.0.0.1]}}]
routes: [{match: {host: app}, service: app}]
services: {app: {discover: static, endpoints: ["127.0.0.1:1"], protocol: http}}`, reactor.Options{})
			dialling, release := make(chan struct{}), make(chan struct{})
			s.dialBy(func(_ int32, nc socket) (loop.Socket, error) {
				close(dialling)
				<-release
				if refused {
					nc.Close()
					return nil, errors.New("refused")
				}
				return nc, nil
			})
			to := &downstream.Unrouted{Listener: "out", Authority: a.addr}
			if original {
				to.To = netip.MustParseAddrPort(a.addr)
			}
			client := s.dialTo(acceptEach(t, func(nc *net.TCPConn) {
				s.srv.Request(socket{nc}, &downstream.StreamRequest{Kind: stats.StreamConnect, Opener: s.srv.worker(), Timeout: waitLimit, Minor: 1, Unrouted: to})
			}))
			receive(t, dialling, "the dial")
			s.onlyPair("the stream", func(p *pair) bool { p.cut(fault.TooManyStreams); return true })
			close(release)
			wantReset(t, "the client", client)
			server := receive(t, a.conns, "the connection")
			_, _ = io.Copy(io.Discard, server) // until it ends
			server.Close()
			s.counts.wantFailure(fault.TooManyStreams.Code)
			s.counts.waitNoStreams()
		}
	}
}
