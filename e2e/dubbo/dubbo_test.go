package dubbo

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/protocol/dubbo"
)

// responder is a Dubbo provider that returns the argument of each call. Calls that
// arrive together are returned in reverse order. Calls of the method hold wait for
// release.
type responder struct {
	t       *testing.T
	addr    string
	release chan struct{}
	held    chan struct{} // a token for each call of hold
	bodies  chan []byte   // of the first calls

	mu    sync.Mutex
	ln    net.Listener
	conns map[net.Conn]bool
}

func newResponder(t *testing.T) *responder {
	r := &responder{t: t, addr: harness.FreeAddrs(t, 1)[0], release: make(chan struct{}), held: make(chan struct{}, 64), bodies: make(chan []byte, 64)}
	r.start()
	t.Cleanup(r.stop)
	return r
}

func (r *responder) start() {
	ln := must.ListenOn(r.t, "tcp", r.addr)
	r.ln, r.conns = ln, map[net.Conn]bool{}
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			r.mu.Lock()
			r.conns[c] = true
			r.mu.Unlock()
			go r.serve(c)
		}
	}()
}

func (r *responder) stop() {
	r.ln.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.conns {
		c.Close()
	}
}

func (r *responder) serve(c net.Conn) {
	defer c.Close()
	var in []byte
	for {
		frames, err := harness.ReadFrames(c, &in)
		if err != nil {
			return
		}
		var out []byte
		for i := len(frames) - 1; i >= 0; i-- {
			f := &frames[i]
			switch {
			case f.Event:
				out = dubbo.AppendHeartbeatAnswer(out, f)
				continue
			case len(r.bodies) < cap(r.bodies):
				r.bodies <- f.Body
			}
			switch {
			case bytes.Contains(f.Body, []byte("hold")):
				r.held <- struct{}{}
				<-r.release
			}
			out = dubbo.AppendFrame(out, echoed(f))
		}
		if _, err := c.Write(out); err != nil {
			return
		}
	}
}

// echoed returns the response to a call whose only argument is a string: the same
// string.
func echoed(f *dubbo.Frame) *dubbo.Frame {
	ans := &dubbo.Frame{Serialization: f.Serialization, Status: dubbo.StatusOK, ID: f.ID}
	if f.Serialization == dubbo.Fastjson {
		ans.Body = fmt.Appendf(nil, "1\n%s\n", bytes.Split(f.Body, []byte("\n"))[5])
		return ans
	}
	_, rest, _ := bytes.Cut(f.Body, []byte(harness.StringType))
	ans.Body = append([]byte{0x91}, rest[:1+int(rest[0])]...) // shorter than 32 bytes
	return ans
}

func dialDubbo(t *testing.T, addr string) net.Conn {
	t.Helper()
	c := must.Dial(t, "tcp", addr)
	if err := c.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	return c
}

func sendCall(t *testing.T, c net.Conn, id int64, method, arg string) {
	t.Helper()
	f := &dubbo.Frame{Request: true, TwoWay: true, Serialization: dubbo.Hessian2, ID: id, Body: harness.HessianCall(method, arg)}
	must.Write(t, c, dubbo.AppendFrame(nil, f))
}

// dubboMesh starts a provider's sidecar in fastjson and a consumer's, which also
// calls the provider directly, in hessian2.
func dubboMesh(t *testing.T, r *responder) (consumer *harness.Process, http, calls string) {
	addrs := harness.FreeAddrs(t, 3)
	p := harness.Start(t, fmt.Sprintf(`
loops: 2
listeners: [{name: ingress, address: %q, protocol: link, service: local}]
services: {local: {discover: static, endpoints: [%q], protocol: dubbo, serialization: fastjson, connect_timeout: 15s, timeout: 2m, max_concurrency: 200}}`,
		addrs[0], r.addr))
	p.Ready()
	consumer = harness.Start(t, fmt.Sprintf(`
loops: 2
listeners:
- {name: egress, address: %q, protocol: http}
- {name: calls, address: %q, protocol: dubbo}
routes:
- {match: {path: /com.acme.Straight/}, service: straight}
- {service: demo}
services:
  demo: {discover: static, endpoints: [%q], protocol: link, connect_timeout: 15s, timeout: 2m}
  straight: {discover: static, endpoints: [%q], protocol: dubbo, connect_timeout: 15s, timeout: 2m}`,
		addrs[1], addrs[2], addrs[0], r.addr))
	consumer.Ready()
	return consumer, "http://" + addrs[1], addrs[2]
}

// posted returns the status and the body of the response to a POST.
func posted(t *testing.T, url, contentType, body string) (int, string) {
	t.Helper()
	req := must.Request(t, http.MethodPost, url, strings.NewReader(body))
	req.Header.Set("Content-Type", contentType)
	resp, got := must.Do(t, http.DefaultClient, req)
	return resp.StatusCode, got
}

// TestDubbo: net/http and a Dubbo consumer call a Dubbo provider through sidecars.
func TestDubbo(t *testing.T) {
	r := newResponder(t)
	_, egress, calls := dubboMesh(t, r)
	form := url.Values{"interface": {"com.acme.Demo"}, "method": {"hash"}, "parameterTypesString": {harness.StringType}, "parameter": {"a & b = ž"}}
	if status, body := posted(t, egress, "application/x-www-form-urlencoded", form.Encode()); status != 200 || body != "a & b = ž" {
		t.Errorf("form: %d %q", status, body)
	}
	for _, service := range []string{"Demo", "Straight"} {
		status, body := posted(t, egress+"/com.acme."+service+"/echo", "application/json", `{"types":["java.lang.String"],"args":["x"]}`)
		if status != 200 || body != `"x"` {
			t.Errorf("%s: %d %q", service, status, body)
		}
	}
	const n = 1000
	c := dialDubbo(t, calls)
	go func() {
		for id := range int64(n) {
			sendCall(t, c, id, "echo", fmt.Sprint("call ", id))
		}
	}()
	seen := map[int64]bool{}
	for in := []byte(nil); len(seen) < n; {
		frames, err := harness.ReadFrames(c, &in)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range frames {
			arg := fmt.Sprint("call ", f.ID)
			if want := append([]byte{0x91, byte(len(arg))}, arg...); seen[f.ID] || f.Status != dubbo.StatusOK || !bytes.Equal(f.Body, want) {
				t.Errorf("call %d: status %d, %q, before: %t", f.ID, f.Status, f.Body, seen[f.ID])
			}
			seen[f.ID] = true
		}
	}
}

// TestDubboProviderRestarts: calls in flight fail at the end of the provider, and later
// calls succeed once it is back.
func TestDubboProviderRestarts(t *testing.T) {
	r := newResponder(t)
	_, _, calls := dubboMesh(t, r)
	c := dialDubbo(t, calls)
	id, in := int64(0), []byte(nil)
	call := func(method string) dubbo.Status {
		t.Helper()
		id++
		sendCall(t, c, id, method, "x")
		if method == "hold" {
			harness.Receive(t, "the call", r.held)
			r.stop()
		}
		frames, err := harness.ReadFrames(c, &in)
		if err != nil || len(frames) != 1 || frames[0].ID != id {
			t.Fatalf("%+v, %v", frames, err)
		}
		return frames[0].Status
	}
	if status := call("echo"); status != dubbo.StatusOK {
		t.Errorf("status %d", status)
	}
	if status := call("hold"); status != dubbo.StatusServerError {
		t.Errorf("status %d of a call that was lost", status)
	}
	close(r.release)
	r.start()
	eventually.Nil(t, "the provider to be called again", func() error {
		if status := call("echo"); status != dubbo.StatusOK {
			return fmt.Errorf("status %d", status)
		}
		return nil
	})
}

// TestDubboDrains: after a signal the consumer gets a read-only event. Calls in flight
// get their responses, then the connection closes and the process ends.
func TestDubboDrains(t *testing.T) {
	r := newResponder(t)
	p, _, calls := dubboMesh(t, r)
	c := dialDubbo(t, calls)
	sendCall(t, c, 1, "hold", "x")
	harness.Receive(t, "the call", r.held)
	p.Signal(syscall.SIGTERM)
	var in []byte
	frames, err := harness.ReadFrames(c, &in)
	if err != nil || len(frames) != 1 || !dubbo.ReadOnly(&frames[0]) {
		t.Fatalf("%+v, %v", frames, err)
	}
	close(r.release)
	if frames, err = harness.ReadFrames(c, &in); err != nil || len(frames) != 1 || frames[0].Status != dubbo.StatusOK {
		t.Fatalf("%+v, %v", frames, err)
	}
	if frames, err = harness.ReadFrames(c, &in); !errors.Is(err, io.EOF) {
		t.Errorf("after the last response: %+v, %v", frames, err)
	}
	p.Ends()
}
