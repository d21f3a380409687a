package attacks

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/racetest"
	"github.com/remora-proxy/remora/internal/testcerts"
)

// tlsAttacks are attacks on the handshakes of a link port. Each runs until ctx ends.
var tlsAttacks = []struct {
	name  string
	run   func(ctx context.Context, addr string, hello []byte)
	meets string // the series that shows it at work
	least int    // and its value then
}{
	// More than the handshakes that may be in progress.
	{"silent connections", func(ctx context.Context, addr string, _ []byte) {
		(&crowd{size: 530, pause: 100 * time.Millisecond}).run(ctx, addr)
	}, `remora_reactor_connections{direction="in"}`, 520},
	{"half ClientHellos", func(ctx context.Context, addr string, hello []byte) {
		flood(ctx, addr, &crowd{first: hello[:len(hello)/2], pause: time.Minute}, 0)
	}, gaveWay, 100},
	// Those that hold the most memory.
	{"long ClientHellos", func(ctx context.Context, addr string, _ []byte) {
		long := append([]byte{22, 3, 1, 0x3f, 0xf0, 1, 0, 0x3f, 0xf0}, make([]byte, 16_000)...)
		flood(ctx, addr, &crowd{first: long, pause: time.Minute}, 0)
	}, gaveWay, 100},
	// Of which each source has a handshake or two, none of them silent for as long as a proper peer.
	{"flights of many sources, byte by byte", func(ctx context.Context, addr string, hello []byte) {
		record := []byte{23, 3, 3, 0x3f, 0xff} // its header
		flood(ctx, addr, &crowd{first: slices.Concat(hello, record), then: []byte{0}, pause: properDelay / 2}, 2400)
	}, tlsBusy, 600},
}

// properDelay is the time that a proper peer takes for its second flight, as if it were far away.
const properDelay = 100 * time.Millisecond

// These count the connections that were closed for newer ones, before and in the handshake.
const (
	gaveWay = `remora_tls_failures_total{code="tls_silent"}`
	tlsBusy = `remora_tls_failures_total{code="tls_busy"}`
)

// flood opens 700 connections a second to addr, or a third of that with -race, which makes both sides
// slow, which behave as those of c do until the peer closes them. They come from so many sources;
// 0 means from one.
func flood(ctx context.Context, addr string, c *crowd, sources int) {
	interval := time.Second / 700
	if racetest.Enabled {
		interval *= 3
	}
	var all sync.WaitGroup
	defer all.Wait()
	n := 0
	for at := time.Now(); pauseFor(ctx, time.Until(at)); at = at.Add(interval) {
		if time.Since(at) > 100*interval { // the machine stood still
			at = time.Now()
		}
		c := *c
		if sources > 0 {
			n++
			c.from = net.IPv4(127, 1, byte(n%sources>>8), byte(n%sources))
		}
		all.Go(func() { c.connection(ctx, addr) })
	}
}

// TestTLSAttacks: peers that say nothing, or a ClientHello and nothing more, take no handshake from others,
// known or not, at the default limits. Memory stays below its bound, and nothing is left afterwards.
func TestTLSAttacks(t *testing.T) {
	app := httptest.NewServer(http.NotFoundHandler())
	defer app.Close()
	ca := testcerts.New(t)
	p, addr := harness.SecureProvider(t, app.Listener.Addr().String(), harness.CertFiles(t, ca, harness.ProviderName))
	cert, key := ca.Issue(testcerts.Leaf{Names: []string{harness.ConsumerName}})
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{pair}, InsecureSkipVerify: true}
	hello := firstFlight(t, config)
	known := net.IPv4(127, 0, 0, 1)
	if racetest.Enabled { // -race makes it slower than the newcomers of its source: it needs a share of its own
		known = net.IPv4(127, 0, 0, 2)
	}
	if err := properHandshake(t.Context(), addr, config, known); err != nil {
		t.Fatal(err)
	}
	before := p.Level()
	for n, a := range tlsAttacks {
		t.Run(a.name, func(t *testing.T) {
			forgetPeak(t, p)
			met := p.Metric(a.meets)
			ctx, stop := context.WithCancel(t.Context())
			over := make(chan struct{})
			go func() { defer close(over); a.run(ctx, addr, hello) }()
			defer func() { stop(); <-over }()
			p.AwaitMetric(a.meets, met+a.least)
			succeeded := 0
			for i := range 20 {
				from := known
				if i%2 == 1 {
					from = net.IPv4(127, 0, byte(1+n), byte(i))
				}
				if err := properHandshake(t.Context(), addr, config, from); err != nil {
					t.Log(err)
					continue
				}
				succeeded++
			}
			if succeeded < 19 {
				t.Errorf("%d of 20 proper handshakes succeeded", succeeded)
			}
			peak := p.Memory(t, "VmHWM")
			if bound := memoryBound(attackBuffered); peak > bound && !racetest.Enabled {
				t.Errorf("%d MiB of memory, over the bound of %d MiB", peak>>20, bound>>20)
			}
			stop()
			<-over
			eventually.Nil(t, "the level before the attack", func() error { return p.Level().Above(before) })
			t.Logf("%d of 20 proper handshakes, %d MiB of memory at most", succeeded, peak>>20)
		})
	}
}

// distant is a connection whose second write comes after properDelay.
type distant struct {
	net.Conn
	writes int
}

// Write implements net.Conn.
func (d *distant) Write(b []byte) (int, error) {
	if d.writes++; d.writes == 2 {
		time.Sleep(properDelay)
	}
	return d.Conn.Write(b)
}

// properHandshake does a handshake and waits for the preface of the sidecar, which shows that
// it has accepted the certificate.
func properHandshake(ctx context.Context, addr string, config *tls.Config, from net.IP) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: from}}
	nc, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer nc.Close()
	c := tls.Client(&distant{Conn: nc}, config)
	if err := c.HandshakeContext(ctx); err != nil {
		return err
	}
	if _, err := c.Write(linkPreface(roleDialer, linkWindow)); err != nil {
		return err
	}
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	_, err = io.ReadFull(c, make([]byte, 8))
	return err
}

// firstFlight returns the ClientHello of a client, in its record.
func firstFlight(t *testing.T, config *tls.Config) []byte {
	client, server := net.Pipe()
	defer server.Close()
	go func() { _ = tls.Client(client, config).Handshake(); client.Close() }()
	b := make([]byte, 16<<10)
	n, err := server.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return b[:n]
}
