package stream

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/fair/share"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// TestStreamShares: a source that has all streams gives way to another, and only to another.
// What each loses is counted.
func TestStreamShares(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{more: "limits: {streams: 4}"}, a.addr)
	open := func(from string) (client, server *net.TCPConn) {
		client = s.dialFrom(from)
		return client, receive(t, a.conns, "the application to get the connection")
	}
	var clients, servers []*net.TCPConn
	for i := range 6 {
		from := "127.0.0.1"
		if i >= 4 {
			from = "127.0.0.2"
		}
		client, server := open(from)
		clients, servers = append(clients, client), append(servers, server)
	}
	for i := range 2 {
		wantReset(t, "the oldest client of the first source", clients[i])
		wantReset(t, "its server", servers[i])
	}
	for _, from := range []string{"127.0.0.1", "127.0.0.2"} {
		s.wantRefusedFrom(from)
	}
	s.eventually("the refused and ended streams to be counted", func() error {
		_, failures := s.counts.totals()
		if taken, max := s.srv.Places(); failures["too-many-streams"] != 4 || len(failures) != 1 || taken != 4 || max != 4 {
			return fmt.Errorf("failures %v, %d of %d places taken", failures, taken, max)
		}
		return nil
	})
	for i := range 6 {
		clients[i].Close()
		servers[i].Close()
	}
	s.counts.waitIdle()
}

// TestStreamsBusy: a request that can't be a stream gets a response that says so, from either
// sidecar.
func TestStreamsBusy(t *testing.T) {
	for busy := range 2 {
		t.Run([]string{"consumer", "provider"}[busy], func(t *testing.T) {
			a := newApp(t)
			c := newChain(t, chainOptions{limits: "streams: 1"}, a.addr)
			full := c.nodes[busy].srv.places
			full.Resize(1)
			place := full.Take(share.Source{}, func() { t.Error("evicted") })
			defer place.Release()
			resp, _ := c.put(t, 10*longest)
			wantError(t, "a long request", resp, 503, "too-many-streams")
			c.waitNoStreams()
		})
	}
}

// TestResponsesBusy: the same for a response that can't be a stream. It is counted once.
func TestResponsesBusy(t *testing.T) {
	app := handle(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(make([]byte, 10*longest))
	})
	for busy, code := range []string{"too-many-streams", "overloaded"} {
		t.Run([]string{"consumer", "provider"}[busy], func(t *testing.T) {
			// When the consumer refuses the response, nobody fetches it.
			c := newChain(t, chainOptions{limits: "streams: 1", park: []time.Duration{time.Millisecond, 0}[busy]}, app)
			full := c.nodes[busy].srv.places
			full.Resize(1)
			place := full.Take(share.Source{}, func() { t.Error("evicted") })
			defer place.Release()
			resp, _ := c.put(t, 0)
			wantError(t, "a long response", resp, 503, code)
			c.waitNoStreams()
			c.nodes[busy].counts.wantFailure("too-many-streams")
		})
	}
}

// TestStreamSharesOfClients: a client that has all streams at a provider gives way to another client of the same
// consumer, and only to another.
func TestStreamSharesOfClients(t *testing.T) {
	app := handle(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.ContentLength == 0 {
			_, _ = w.Write(make([]byte, 10*longest))
		}
	})
	local := netip.MustParseAddr("127.0.0.1") // both the consumer and its first client
	for name, size := range map[string]int{"request": 10 * longest, "response": 0} {
		t.Run(name, func(t *testing.T) {
			c := newChain(t, chainOptions{limits: "streams: 2"}, app)
			full := c.nodes[1].srv.places
			full.Resize(2)
			var evicted atomic.Int32
			for range 2 {
				defer full.Take(share.Source{Peer: local, Client: local}, func() { evicted.Add(1) }).Release()
			}
			for _, client := range []struct {
				from            string
				status, evicted int
			}{{"127.0.0.1", http.StatusServiceUnavailable, 0}, {"127.0.0.2", http.StatusOK, 1}} {
				c.client.Transport = &http.Transport{DialContext: func(_ context.Context, _, addr string) (net.Conn, error) { return dialFrom(client.from, addr) }}
				resp, _ := c.put(t, size)
				if got := int(evicted.Load()); resp.StatusCode != client.status || got != client.evicted {
					t.Errorf("%s: %s, %d streams gave way", client.from, resp.Status, got)
				}
				c.waitNoStreams()
			}
		})
	}
}

// TestStreamsWithoutHead: of streams whose head does not come, the oldest gives way. They keep no place from others.
func TestStreamsWithoutHead(t *testing.T) {
	app := handle(t, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	c := newChain(t, chainOptions{limits: "streams: 2"}, app)
	s := c.nodes[1]
	var silent []net.Conn
	for n := range 3 {
		nc := c.peer()
		_, _ = nc.Write(link.AppendStream(nil, &link.Stream{Kind: link.StreamHTTP, TimeLeft: waitLimit}))
		silent = append(silent, nc)
		s.eventually("the stream to wait for its head", func() error {
			if open, waiting := s.srv.Open(), s.srv.headPlaces.Taken(); open != min(n+1, 2) || waiting != open {
				return fmt.Errorf("%d streams, %d of them wait", open, waiting)
			}
			return nil
		})
	}
	if _, err := silent[0].Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the oldest stream: %v, want a reset", err)
	}
	if resp, body := c.put(t, 10*longest); resp.StatusCode != http.StatusOK {
		t.Errorf("got %s %q", resp.Status, body)
	}
	s.eventually("two streams to have given way", func() error {
		if _, failures := s.counts.totals(); failures["too-many-streams"] != 2 || len(failures) != 1 {
			return fmt.Errorf("failures %v", failures)
		}
		return nil
	})
	for _, nc := range silent {
		nc.Close()
	}
	c.waitNoStreams()
}

// TestCutEarly: a stream that gives way before it has an endpoint fails by that, and by nothing else.
func TestCutEarly(t *testing.T) {
	a := newApp(t)
	t.Run("head", func(t *testing.T) {
		s := newSidecar(t, options{}, a.addr)
		client := s.dialTo(acceptEach(s.t, func(nc *net.TCPConn) {
			s.srv.Accept(socket{nc}, &downstream.StreamAccept{
				Opener: s.srv.worker(), Service: "app", Timeout: waitLimit, Stream: link.Stream{Kind: link.StreamHTTP},
			})
		}))
		s.eventually("the stream to begin", func() error {
			s.srv.mu.Lock()
			defer s.srv.mu.Unlock()
			for p := range s.srv.open {
				p.cut(fault.TooManyStreams)
				return nil
			}
			return errors.New("none is open")
		})
		wantReset(t, "the client", client)
		s.counts.wantFailure("too-many-streams")
	})
	t.Run("connecting", func(t *testing.T) {
		s := newSidecar(t, options{}, a.addr)
		client, server := s.pair(a)
		p := &pair{srv: s.srv, opener: s.srv.worker(), down: &end{conn: client, tcp: client}}
		p.cut(fault.TooManyStreams)
		tun := s.srv.newTunnel(p, "app", waitLimit)
		if _, _, fail := tun.connector.connect(&tun.query); fail != fault.TooManyStreams {
			t.Errorf("got %+v", fail)
		}
		server.Close()
		receive(t, a.conns, "the second connection").Close()
		s.counts.waitIdle()
		if sum, _ := s.counts.totals(); sum.StreamBytesIn != 0 || sum.StreamBytesOut != 0 {
			t.Errorf("%d bytes in and %d out count", sum.StreamBytesIn, sum.StreamBytesOut)
		}
	})
}

// TestNoDescriptor: an endpoint that can't be dialled for lack of descriptors is not to blame.
func TestNoDescriptor(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{}, a.addr)
	client, server := s.pair(a)
	srv := New(s.srv.opt)
	srv.opt.Dial = func(context.Context, string, string, string, []byte) (loop.Socket, error) {
		return nil, fmt.Errorf("dial: %w", loop.ErrDialQueue)
	}
	p := &pair{srv: srv, opener: srv.worker(), down: &end{conn: client, tcp: client}}
	tun := srv.newTunnel(p, "app", waitLimit)
	if _, _, fail := tun.connector.connect(&tun.query); fail != fault.DialLimit {
		t.Errorf("got %+v", fail)
	}
	client.Close()
	server.Close()
	s.counts.waitIdle()
	if err := srv.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestOpaqueRefused: a link takes a tunnel to a service of requests only with opaque.
func TestOpaqueRefused(t *testing.T) {
	a := newApp(t)
	linked(t, chainOptions{requests: true}, func(t *testing.T, c *chain) {
		client := c.nodes[0].dial()
		_, _ = io.WriteString(client, "CONNECT bytes:1 HTTP/1.1\r\nHost: bytes:1\r\n\r\nGET / HTTP/1.1\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(client), nil)
		if err != nil {
			t.Fatal(err)
		}
		wantError(t, "the tunnel", resp, 404, "no-route")
		client.Close()
		c.nodes[1].counts.wantFailure("no-route")
		c.nodes[0].counts.wantFailure("no-route")
		if len(a.conns) != 0 {
			t.Error("the application got a connection")
		}
	}, a.addr)
}

func (c *chain) put(t *testing.T, size int) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequest("PUT", "http://"+c.addr+"/", strings.NewReader(strings.Repeat("x", size)))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

// TestLongStream: a stream that lasts timeouts.stream is reset, though bytes flow.
func TestLongStream(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{more: "timeouts: {stream: 200ms}"}, a.addr)
	client, server := s.pair(a)
	go func() { _, _ = io.Copy(server, zeros{}) }()
	if _, err := io.Copy(io.Discard, client); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("the client read to %v, want a reset", err)
	}
	server.Close()
	s.counts.waitIdle()
}

// TestRefusedIsCounted: a stream that is refused before it is opened is counted, once.
func TestRefusedIsCounted(t *testing.T) {
	for code, r := range map[string]downstream.StreamRequest{
		"bad-request": {Kind: stats.StreamBody}, // without a head: it can't be sent safely
		"overloaded":  {Kind: stats.StreamBody, Head: []byte("GET / HTTP/1.1\r\n\r\n")},
	} {
		t.Run(code, func(t *testing.T) {
			s := newSidecar(t, options{})
			r.Opener, r.Service, r.Timeout, r.Minor = s.srv.worker(), "app", waitLimit, 1
			if code == "overloaded" {
				limit := int(s.srv.config().Limits.Buffered)
				s.proc.Charge(limit)
				defer s.proc.Charge(-limit)
			}
			client := s.dialTo(acceptEach(s.t, func(nc *net.TCPConn) { s.srv.Request(socket{nc}, &r) }))
			resp, err := http.ReadResponse(bufio.NewReader(client), nil)
			if err != nil || resp.Header.Get("X-Remora-Error") != code {
				t.Errorf("got %+v, %v", resp, err)
			}
			s.counts.wantFailure(code)
		})
	}
}
