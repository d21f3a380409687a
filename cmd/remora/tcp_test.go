package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"
)

// tcpSidecar starts a sidecar with a tcp listener in front of endpoint.
func tcpSidecar(t *testing.T, endpoint, more string) (*process, string) {
	in := freeAddrs(t, 1)[0]
	p := startRemora(t, fmt.Sprintf(`
loops: 2
listeners: [{name: in, address: %q, protocol: tcp, service: app}]
services: {app: {discover: static, endpoints: [%q], protocol: tcp, connect_timeout: 15s, timeout: 2m}}
%s`, in, endpoint, more))
	p.ready()
	return p, in
}

// TestTCPCarriesHTTP2: what the sidecar does not parse passes as opaque bytes,
// here HTTP/2 with prior knowledge, as gRPC uses it.
func TestTCPCarriesHTTP2(t *testing.T) {
	app := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s", r.Proto, body)
	}))
	app.Config.Protocols = new(http.Protocols)
	app.Config.Protocols.SetUnencryptedHTTP2(true)
	app.Start()
	defer app.Close()
	p, in := tcpSidecar(t, app.Listener.Addr().String(), "")
	transport := &http.Transport{Protocols: app.Config.Protocols}
	defer transport.CloseIdleConnections()
	client := http.Client{Transport: transport, Timeout: patience}
	for i := range 20 {
		resp, err := client.Post("http://"+in+"/", "text/plain", strings.NewReader(fmt.Sprint(i)))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if want := fmt.Sprintf("HTTP/2.0 %d", i); string(got) != want || err != nil {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
	_, metrics := p.get("/metrics")
	for _, want := range []string{
		`remora_streams_open{service="app"} 1`,
		`remora_streams_total{result="connected",service="app"} 1`,
		`remora_reactor_connections{direction="in"} 1`,
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("no %s in the metrics", want)
		}
	}
}

// TestTCPDrain: a drain waits for streams to end by themselves, and cuts what is
// left when timeouts.drain has passed.
func TestTCPDrain(t *testing.T) {
	for _, c := range []struct {
		name, more string
		finish     bool // the client ends its stream
	}{
		{"ends", "timeouts: {drain: 10m}", true},
		{"cut", "timeouts: {drain: 300ms}", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			app, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer app.Close()
			go func() {
				for {
					nc, err := app.Accept()
					if err != nil {
						return
					}
					go func() {
						defer nc.Close()
						_, _ = io.Copy(nc, nc)
					}()
				}
			}()
			p, in := tcpSidecar(t, app.Addr().String(), c.more)
			client, err := net.Dial("tcp", in)
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			_ = client.SetDeadline(time.Now().Add(patience))
			talk := func(s string) {
				t.Helper()
				got := make([]byte, len(s))
				if _, err := io.WriteString(client, s); err != nil {
					t.Fatal(err)
				}
				if _, err := io.ReadFull(client, got); string(got) != s || err != nil {
					t.Fatalf("got %q, %v", got, err)
				}
			}
			talk("before")
			p.signal(syscall.SIGTERM)
			refused(t, in)
			if c.finish {
				talk("while it drains")
				_ = client.(*net.TCPConn).CloseWrite()
			}
			rest, err := io.ReadAll(client)
			if c.finish != (err == nil) || len(rest) > 0 {
				t.Errorf("the stream ended with %q, %v", rest, err)
			}
			if code := p.exitCode(); code != 0 {
				t.Errorf("exit code %d", code)
			}
		})
	}
}
