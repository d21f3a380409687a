package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/eventually"
)

// h2Attack is a group of ways to misuse HTTP/2 that one limit stops.
type h2Attack struct {
	name  string
	meets string // the series of the limit; "" means no particular one
	size  int    // connections of each way at a time; 0 means 2
	deaf  bool   // the connections are not read
	ways  []h2Way
}

// h2Way is what one connection does. run returns what the sidecar did wrong, once the connection
// has ended or has done all it does. One that would go on for ever returns when ctx ends.
type h2Way struct {
	name string
	run  func(ctx context.Context, p *h2Peer) error
}

// TestHTTP2Attacks misuses the HTTP/2 of a listener as TestAttacks misuses its HTTP/1.1, beside
// a well-behaved load of both. Besides, each connection must end as it deserves.
func TestHTTP2Attacks(t *testing.T) {
	m := newAttackMesh(t, attackBuffered, attackConnections, nil)
	before := m.levels()
	for _, a := range slices.Concat(http2Floods, http2Slow, http2Heads, http2Bombs) {
		t.Run(a.name, func(t *testing.T) {
			stop := loadHTTP2(t, m.http, 8, 1000)
			defer stop()
			// Its connection is part of the level, so the attack is over before the load.
			before := slices.Clone(before)
			for i := range before {
				before[i].descriptors++
			}
			m.attack(t, &attack{name: a.name, run: a.crowd(t), meets: a.meets}, m.consumer, before)
		})
	}
}

// crowd repeats each way on connections of their own until its context ends, but does each once.
func (a *h2Attack) crowd(t *testing.T) func(ctx context.Context, m *attackMesh) {
	return func(ctx context.Context, m *attackMesh) {
		var all sync.WaitGroup
		for i := range a.ways {
			for range max(a.size, 2) {
				all.Go(func() {
					for first := true; first || ctx.Err() == nil; first = false {
						if err := a.connection(ctx, m.http, &a.ways[i]); err != nil {
							t.Errorf("%s: %v", a.ways[i].name, err)
							return
						}
					}
				})
			}
		}
		all.Wait()
	}
}

func (a *h2Attack) connection(ctx context.Context, addr string, way *h2Way) error {
	var d net.Dialer
	if a.deaf {
		d.Control = smallBuffer
	}
	nc, err := d.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer nc.Close()
	_ = nc.SetWriteDeadline(time.Now().Add(patience))
	p := newH2Peer(nc)
	if !a.deaf {
		heard := make(chan struct{})
		defer func() { nc.Close(); <-heard }()
		go func() { defer close(heard); p.listen() }()
	}
	return way.run(ctx, p)
}

// loadHTTP2 sends so many requests at a time over HTTP/2 until stop is called, with bodies whose lengths
// differ by step. None of them may fail.
func loadHTTP2(t *testing.T, addr string, streams, step int) (stop func()) {
	tr := &http.Transport{Protocols: new(http.Protocols)}
	tr.Protocols.SetUnencryptedHTTP2(true)
	ctx, cancel := context.WithCancel(t.Context())
	var done atomic.Int64
	var all sync.WaitGroup
	for i := range streams {
		all.Go(func() {
			for ctx.Err() == nil {
				if err := requestHTTP2(tr, addr, step*i); err != nil {
					t.Errorf("a well-behaved request over HTTP/2 failed: %v", err)
					return
				}
				done.Add(1)
				pauseFor(ctx, 20*time.Millisecond)
			}
		})
	}
	return func() {
		cancel()
		all.Wait()
		tr.CloseIdleConnections()
		if done.Load() == 0 {
			t.Error("no request over HTTP/2")
		}
		t.Logf("%d well-behaved requests over HTTP/2", done.Load())
	}
}

// requestHTTP2 sends one request with length bytes of body.
func requestHTTP2(tr http.RoundTripper, addr string, length int) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	body := strings.Repeat("x", length)
	req, err := http.NewRequestWithContext(ctx, "POST", "http://"+addr+"/echo", strings.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 || resp.ProtoMajor != 2 || string(b) != body {
		return fmt.Errorf("%s %s, %d bytes of %d, %v, %.200q", resp.Proto, resp.Status, len(b), len(body), err, b)
	}
	return nil
}

// TestHTTP2LateReader: a client may have many responses before it reads them. The one of Go then sends two
// WINDOW_UPDATE for each 4 KiB that it reads, while it gets nothing.
func TestHTTP2LateReader(t *testing.T) {
	const length, count = 3 << 20, 16
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(make([]byte, length))
	}))
	t.Cleanup(app.Close)
	p, clients := startHTTP2(t, app.Listener.Addr().String())
	client := clients["plain"]
	get := func() io.Reader {
		resp, err := client.Get(client.base)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return resp.Body
	}
	var bodies []io.Reader
	for range count {
		bodies = append(bodies, get())
	}
	eventually.True(t, "the sidecar to have sent all", func() bool {
		l := p.level()
		return l.pending == 0 && l.buffered < length/2
	})
	for i, body := range bodies {
		n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{body}, make([]byte, 4<<10))
		if n != length || err != nil {
			t.Fatalf("response %d: %d bytes of %d, %v", i, n, length, err)
		}
	}
	get() // comes behind all WINDOW_UPDATE
	if n := p.metric(floodSeries("others")); n != 0 {
		t.Error("its connection was closed for a flood")
	}
}

// TestHTTP2Download: a client that opens its windows in small steps may read fast. The one of Go
// sends two WINDOW_UPDATE for each read.
func TestHTTP2Download(t *testing.T) {
	const length = 256 << 20
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.CopyN(w, zeros{}, length)
	}))
	defer app.Close()
	addr := freeAddrs(t, 1)[0]
	startRemora(t, fmt.Sprintf(`
listeners: [{name: in, address: %q, protocol: http, service: out}]
services: {out: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s, timeout: 2m}}`, addr, app.Listener.Addr())).ready()
	tr := &http.Transport{Protocols: new(http.Protocols)}
	tr.Protocols.SetUnencryptedHTTP2(true)
	defer tr.CloseIdleConnections()
	resp, err := (&http.Client{Transport: tr}).Get("http://" + addr + "/")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if n, err := io.Copy(io.Discard, struct{ io.Reader }{resp.Body}); n != length || err != nil || resp.ProtoMajor != 2 {
		t.Errorf("%d bytes of %d over %s, %v", n, length, resp.Proto, err)
	}
}
