package attacks

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/e2e/harness/h2"
	"github.com/remora-proxy/remora/internal/eventually"
)

// h2Endpoint is an endpoint that breaks rules of HTTP/2, or uses them badly.
type h2Endpoint struct {
	name string

	// connected is called for each connection, once the client's preface has arrived. It
	// reports whether the connection lasts. nil sends SETTINGS.
	connected func(p *h2.Peer) bool

	// requested is called for each request that is complete, or with early, whose head is. It
	// reports whether the connection lasts.
	requested func(p *h2.Peer, id uint32) bool
	early     bool

	want      string // the response, as a pattern of its status and error code or body
	elsewhere bool   // another endpoint gets the request if there is one
}

// responding is the response of a hostile endpoint to each request.
func responding(name, want string, frames func(id uint32) []byte) h2Endpoint {
	return h2Endpoint{name: name, want: want, requested: func(p *h2.Peer, id uint32) bool { return p.Send(frames(id)) }}
}

// respondingOnce is responding, and then the connection ends.
func respondingOnce(name, want string, frames func(id uint32) []byte) h2Endpoint {
	return h2Endpoint{name: name, want: want, requested: func(p *h2.Peer, id uint32) bool { p.Send(frames(id)); return false }}
}

// greet sends b in place of SETTINGS, and a good response to each request.
func greet(name, want string, b ...[]byte) h2Endpoint {
	return h2Endpoint{name: name, want: want, connected: func(p *h2.Peer) bool { return p.Send(b...) },
		requested: func(p *h2.Peer, id uint32) bool { return p.Send(goodResponse(id)) }}
}

// okHead is a response's head.
func okHead(id uint32, flags http2.Flags, more ...string) []byte {
	return h2.Heads(id, flags, h2.Block(append([]string{":status", "200"}, more...)...))
}

func goodResponse(id uint32) []byte {
	return append(okHead(id, 0, "content-length", "4"), h2.Data(id, h2.EndStream, []byte("good"))...)
}

// serve is a connection of a hostile endpoint.
func (h *h2Endpoint) serve(nc net.Conn) {
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(nc, preface); err != nil || string(preface) != http2.ClientPreface {
		return
	}
	p := h2.NewPeer(nc)
	heard := make(chan struct{})
	go func() { defer close(heard); p.Listen() }()
	defer func() { nc.Close(); <-heard }()
	if h.connected == nil {
		p.Send(h2.Settings(), h2.SettingsAck())
	} else if !h.connected(p) {
		return
	}
	for n := 0; ; n++ {
		var id uint32
		err := p.Until("a request", func(heard *h2.Heard) bool {
			seen := 0
			for _, stream := range heard.Order {
				if s := heard.Streams[stream]; s.Ended || h.early && len(s.Fields) > 0 {
					if id = stream; seen == n {
						return true
					}
					seen++
				}
			}
			return false
		})
		if err != nil {
			return
		}
		if h.requested != nil && !h.requested(p, id) {
			return
		}
	}
}

// takenElsewhere says that a request may be sent to another endpoint.
func (h h2Endpoint) takenElsewhere() h2Endpoint { h.elsewhere = true; return h }

// TestHTTP2HostileEndpoints: each request to an endpoint that breaks the rules ends with exactly
// one right response, over HTTP/1.1 and HTTP/2. The sidecar goes on to serve others, and nothing
// of the requests is left.
func TestHTTP2HostileEndpoints(t *testing.T) {
	app := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, "good")
	}))
	app.Config.Protocols = harness.Protocols("2")
	app.Start()
	defer app.Close()

	all := hostiles()
	var routes, services strings.Builder
	seen := make([]atomic.Int64, len(all))
	for i := range all {
		addr := harness.ServeTCP(t, func(nc net.Conn) { seen[i].Add(1); all[i].serve(nc) })
		fmt.Fprintf(&routes, "\n- {match: {path: /alone/%d}, service: alone%d}", i, i)
		fmt.Fprintf(&services, "\n  alone%d: {discover: static, endpoints: [%q], protocol: http2, timeout: %s, connect_timeout: 15s}",
			i, addr, hostileTimeout(all[i].want))
		if all[i].elsewhere {
			fmt.Fprintf(&routes, "\n- {match: {path: /both/%d}, service: both%d}", i, i)
			fmt.Fprintf(&services, "\n  both%d: {discover: static, endpoints: [%q, %q], protocol: http2, timeout: 20s, connect_timeout: 15s}",
				i, addr, app.Listener.Addr())
		}
	}
	egress := harness.FreeAddrs(t, 1)[0]
	p := harness.Start(t, fmt.Sprintf(`
loops: 2
limits: {header: %d}
listeners: [{name: egress, address: %q, protocol: http}]
routes:%s
- {service: good}
services:%s
  good: {discover: static, endpoints: [%q], protocol: http2, connect_timeout: 15s}`, attackHeader, egress, &routes, &services, app.Listener.Addr()))
	p.Ready()

	var crowd sync.WaitGroup
	turns := make(chan struct{}, 8)
	for i := range all {
		crowd.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			if err := all[i].try(egress, i, &seen[i]); err != nil {
				t.Errorf("%s: %v", all[i].name, err)
			}
		})
	}
	crowd.Wait()
	eventually.Nil(t, "no request to be pending", func() error {
		if l := p.Level(); l.Pending > 0 || l.Buffered > harness.RestBytes {
			return fmt.Errorf("%+v", l)
		}
		return nil
	})
}

// hostileTimeout is short where it must pass.
func hostileTimeout(want string) string {
	if strings.Contains(want, isDeadline) {
		return "1s"
	}
	return "20s"
}

// try sends requests to the endpoint.
func (h *h2Endpoint) try(egress string, i int, seen *atomic.Int64) error {
	want := regexp.MustCompile("^(" + h.want + ")$")
	ask := func(path string, want *regexp.Regexp) error {
		for _, client := range []func(addr, path string) (string, error){askHTTP1, askHTTP2} {
			got, err := client(egress, path)
			if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			if !want.MatchString(got) {
				return fmt.Errorf("%s: got %q, want %s", path, got, want)
			}
		}
		return nil
	}
	if err := ask(fmt.Sprintf("/alone/%d", i), want); err != nil || !h.elsewhere {
		return err
	}
	good := regexp.MustCompile("^" + isGood + "$")
	for before, n := seen.Load(), 0; n < 50 && (n < 2 || seen.Load() == before); n++ {
		if err := ask(fmt.Sprintf("/both/%d", i), good); err != nil {
			return err
		}
	}
	return nil
}

// uploaded is longer than the windows that a hostile endpoint opens.
var uploaded = bytes.Repeat([]byte("x"), 5000)

// outcomeOf is the status of a response with its error code, or else its body.
func outcomeOf(resp *http.Response) (string, error) {
	b, err := io.ReadAll(resp.Body)
	if code := resp.Header.Get("X-Remora-Error"); code != "" {
		return fmt.Sprint(resp.StatusCode, " ", code), err
	}
	return fmt.Sprint(resp.StatusCode, " ", string(b)), err
}

// askHTTP1 sends a POST for the path, and a good one behind it on the same connection. A second
// response to the first would be taken for that of the good one.
func askHTTP1(addr, path string) (got string, err error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return "", err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(harness.Patience))
	r := bufio.NewReader(c)
	for i, path := range []string{path, "/good"} {
		if _, err := c.Write(append(postHead(path, len(uploaded), ""), uploaded...)); err != nil {
			return "", err
		}
		resp, err := http.ReadResponse(r, nil)
		for err == nil && resp.StatusCode < 200 {
			resp, err = http.ReadResponse(r, nil)
		}
		if err != nil {
			return "", err
		}
		outcome, err := outcomeOf(resp)
		switch {
		case i == 0:
			got = outcome
			if err != nil || resp.Close {
				return got, err
			}
		case outcome != isGood:
			return got, fmt.Errorf("behind %q, the good request got %q, %w", got, outcome, err)
		}
	}
	return got, nil
}

// askHTTP2 is askHTTP1 over HTTP/2.
func askHTTP2(addr, path string) (string, error) {
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		return "", err
	}
	p := h2.NewPeer(nc)
	heard := make(chan struct{})
	go func() { defer close(heard); p.Listen() }()
	defer func() { nc.Close(); <-heard }()
	p.Send(h2.Hello(), h2.SettingsAck(), h2.Post(1, path), h2.Data(1, h2.EndStream, uploaded))
	if err := p.UntilOver(1); err != nil {
		return "", err
	}
	p.Send(h2.Post(3, "/good"), h2.Data(3, h2.EndStream, uploaded))
	if err := errors.Join(p.UntilOver(3), p.UntilAnswer(3, "good")); err != nil {
		return "", err
	}
	p.Mu.Lock()
	defer p.Mu.Unlock()
	s := p.Heard.Streams[1]
	if code := s.Field("x-remora-error"); code != "" {
		return s.Field(":status") + " " + code, p.Heard.Wrong
	}
	return s.Field(":status") + " " + string(s.Body), p.Heard.Wrong
}
