package attacks

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/e2e/harness/h2"
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
	run  func(ctx context.Context, p *h2.Peer) error
}

// TestHTTP2Attacks misuses the HTTP/2 of a listener as TestAttacks misuses its HTTP/1.1, beside
// a well-behaved load of both. Besides, each connection must end as it deserves.
func TestHTTP2Attacks(t *testing.T) {
	m := newAttackMesh(t, usualLimits, nil)
	before := m.levels()
	for _, a := range slices.Concat(http2Floods, http2Slow, http2Heads, http2Bombs) {
		t.Run(a.name, func(t *testing.T) {
			const loadConnections = 8
			stop := loadHTTP2(t, m.http, loadConnections, 1000)
			defer stop()
			// Its connections are part of the level, so the attack is over before the load.
			before := slices.Clone(before)
			for i := range before {
				before[i].Descriptors += loadConnections
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
	_ = nc.SetWriteDeadline(time.Now().Add(harness.Patience))
	p := h2.NewPeer(nc)
	if !a.deaf {
		heard := make(chan struct{})
		defer func() { nc.Close(); <-heard }()
		go func() { defer close(heard); p.Listen() }()
	}
	return way.run(ctx, p)
}

// loadHTTP2 sends one request after another on so many connections of HTTP/2 until stop is called, with bodies whose lengths
// differ by step. None of them may fail: each connection has one request, which may be in the reserve of max_pending.
func loadHTTP2(t *testing.T, addr string, connections, step int) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var done atomic.Int64
	var all sync.WaitGroup
	for i := range connections {
		tr := harness.Transport(t, "2")
		all.Go(func() {
			defer tr.CloseIdleConnections()
			for ctx.Err() == nil {
				if err := requestHTTP2(tr, addr, step*(i+1)); err != nil {
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
		if done.Load() == 0 {
			t.Error("no request over HTTP/2")
		}
		t.Logf("%d well-behaved requests over HTTP/2", done.Load())
	}
}

// requestHTTP2 sends one request with length bytes of body.
func requestHTTP2(tr http.RoundTripper, addr string, length int) error {
	ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
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
