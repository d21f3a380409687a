package stream

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/remora-proxy/remora/registry"
)

// TestEcho: every byte of many streams at once comes back in order, both ends see an end
// of file, and nothing is left over.
func TestEcho(t *testing.T) {
	const conns, rounds, size = 64, 3, 512 << 10
	a := newApp(t)
	s := newSidecar(t, options{}, a.addr)
	before := openFiles(t)
	var echoes sync.WaitGroup
	for round := range rounds {
		var all sync.WaitGroup
		for i := range conns {
			all.Go(func() {
				if err := echo(s.addr, uint64(round*conns+i), size); err != nil {
					t.Error(err)
				}
			})
			echoes.Go(func() {
				nc := receive(t, a.conns, "a connection")
				defer nc.Close()
				if _, err := io.Copy(nc, nc); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
	echoes.Wait()
	s.counts.waitIdle()
	sum, failures := s.counts.totals()
	const bytes = conns * rounds * size
	if sum.Streams != conns*rounds || sum.StreamBytesIn != bytes || sum.StreamBytesOut != bytes || len(failures) > 0 {
		t.Errorf("%d streams, %d bytes in, %d out, failures %v; want %d, and %d bytes each way",
			sum.Streams, sum.StreamBytesIn, sum.StreamBytesOut, failures, conns*rounds, bytes)
	}
	waitFilesClosed(t, before)
}

// echo sends size bytes in random pieces, closes its direction, and compares the bytes that come
// back.
func echo(addr string, seed uint64, size int) error {
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(waitLimit))
	rnd := rand.New(rand.NewPCG(seed, 3))
	sent := bytes.Repeat([]byte(fmt.Sprintf("stream %d; ", seed)), size/10+1)[:size]
	failed := make(chan error, 1)
	go func() {
		for b := sent; len(b) > 0; {
			n := min(len(b), 1+rnd.IntN(64<<10))
			if _, err := nc.Write(b[:n]); err != nil {
				failed <- err
				return
			}
			b = b[n:]
		}
		failed <- nc.(*net.TCPConn).CloseWrite()
	}()
	got, err := io.ReadAll(nc)
	if err := errors.Join(err, <-failed); err != nil {
		return fmt.Errorf("stream %d: %w", seed, err)
	}
	if sha256.Sum256(got) != sha256.Sum256(sent) {
		return fmt.Errorf("stream %d: received %d of %d bytes, or other bytes", seed, len(got), len(sent))
	}
	return nil
}

// TestHalfClose: either side may close its direction first; the other continues.
func TestHalfClose(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{}, a.addr)
	for _, first := range []string{"client", "server"} {
		client, server := s.pair(a)
		one, other := client, server
		if first == "server" {
			one, other = server, client
		}
		_, _ = io.WriteString(one, "question")
		_ = one.CloseWrite()
		if got, err := io.ReadAll(other); string(got) != "question" || err != nil {
			t.Errorf("%s first: %q, %v", first, got, err)
		}
		response := strings.Repeat("response", 1<<20)
		go func() {
			_, _ = io.WriteString(other, response)
			_ = other.CloseWrite()
		}()
		if got, err := io.ReadAll(one); string(got) != response || err != nil {
			t.Errorf("%s first: %d bytes of the response, %v", first, len(got), err)
		}
		server.Close()
	}
	s.counts.waitIdle()
}

// TestReset: a reset of either end resets the other at once.
func TestReset(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{}, a.addr)
	s.srv.flush = time.Hour // must not be awaited
	for _, first := range []string{"client", "server"} {
		client, server := s.pair(a)
		one, other := client, server
		if first == "server" {
			one, other = server, client
		}
		_, _ = io.WriteString(one, "x")
		if _, err := io.ReadFull(other, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		(&end{conn: one, tcp: one}).reset()
		wantReset(t, "the other of the "+first, other)
		other.Close()
	}
	s.counts.waitIdle()
}

// TestCloseOfReader: if one side closes while the other sends, the sender is reset.
func TestCloseOfReader(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{}, a.addr)
	client, server := s.pair(a)
	client.Close()
	block := make([]byte, 64<<10)
	for {
		if _, err := server.Write(block); err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error("the server was not reset")
			}
			break
		}
	}
	server.Close()
	s.counts.waitIdle()
}

// TestBackpressure: a reader that stops stalls its sender once the kernels' buffers are
// full, in either direction. When it reads on, nothing is lost.
func TestBackpressure(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{}, a.addr)
	for _, sender := range []string{"client", "server"} {
		from, to := s.pair(a)
		if sender == "server" {
			from, to = to, from
		}
		const most = 64 << 20
		sent, block := 0, make([]byte, 256<<10)
		for sent < most {
			_ = from.SetWriteDeadline(time.Now().Add(500 * time.Millisecond))
			n, err := from.Write(block)
			sent += n
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if sent >= most {
			t.Errorf("the %s sent %d bytes without a reader", sender, sent)
		}
		_ = from.CloseWrite()
		if n, err := io.Copy(io.Discard, to); int(n) != sent || err != nil {
			t.Errorf("%d bytes arrived of %d, %v", n, sent, err)
		}
		from.Close()
		to.Close()
	}
	s.counts.waitIdle()
}

// TestConnectRetry: a stream succeeds if one of three endpoints accepts it.
func TestConnectRetry(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{}, refusingAddr(t), refusingAddr(t), a.addr)
	for range 20 {
		client, server := s.pair(a)
		client.Close()
		server.Close()
	}
	s.counts.waitIdle()
	sum, failures := s.counts.totals()
	if sum.Streams != 20 || sum.StreamsFailed != 0 || len(failures) > 0 {
		t.Errorf("%d streams, %d failed, %v", sum.Streams, sum.StreamsFailed, failures)
	}
}

// TestNoEndpoint: a stream without an endpoint is reset, and counted with its reason.
func TestNoEndpoint(t *testing.T) {
	for _, c := range []struct {
		code string
		list []registry.Endpoint
	}{
		{"upstream-connect", []registry.Endpoint{endpoint(refusingAddr(t)), endpoint(refusingAddr(t))}},
		{"no-endpoint", nil},
	} {
		s := newSidecar(t, options{})
		s.update(c.list...)
		s.wantRefused()
		s.counts.waitIdle()
		sum, failures := s.counts.totals()
		if failures[c.code] != 1 || len(failures) != 1 || sum.StreamsFailed != 1 || sum.Streams != 0 {
			t.Errorf("%s: failures %v, %d failed, %d open", c.code, failures, sum.StreamsFailed, sum.Streams)
		}
	}
}

// TestLimits: limits.connections, limits.per_source and limits.streams admit as many as
// they say and refuse one more. A stream that has ended no longer counts.
func TestLimits(t *testing.T) {
	for name, o := range map[string]options{
		"limits.connections": {connections: 2},
		"limits.per_source":  {perSource: 2},
		"limits.streams":     {more: "limits: {streams: 2}"},
	} {
		t.Run(name, func(t *testing.T) {
			a := newApp(t)
			s := newSidecar(t, o, a.addr)
			const limit = 2
			var ends []*net.TCPConn
			for range limit {
				client, server := s.pair(a)
				ends = append(ends, client, server)
			}
			s.wantRefused()
			ends[0].Close()
			ends[1].Close()
			s.eventually("the closed stream to be uncounted", func() error {
				if s.proc.Pending() != limit-1 || s.reactor.Stats().Inbound != int64(limit-1) {
					return errors.New("not yet")
				}
				return nil
			})
			client, server := s.pair(a)
			for _, nc := range append(ends, client, server) {
				nc.Close()
			}
			s.counts.waitIdle()
		})
	}
}

// TestIdle: a stream without progress is reset at both ends.
func TestIdle(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{more: "timeouts: {idle: 200ms}"}, a.addr)
	client, server := s.pair(a)
	wantReset(t, "the client", client)
	wantReset(t, "the server", server)
	server.Close()
	s.counts.waitIdle()
}

// TestMoved: bytes in either direction, and nothing else, count as progress.
func TestMoved(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{}, a.addr)
	client, server := s.pair(a)
	var tun *pair
	s.eventually("the stream to be open", func() error {
		s.srv.mu.Lock()
		defer s.srv.mu.Unlock()
		for tun = range s.srv.open {
			tun.mu.Lock()
			defer tun.mu.Unlock()
			if tun.up != nil {
				return nil
			}
		}
		return errors.New("not yet")
	})
	last := tun.moved()
	for i, pair := range [][2]net.Conn{{client, server}, {server, client}} {
		_, _ = io.WriteString(pair[0], "x")
		if _, err := io.ReadFull(pair[1], make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		s.eventually("the byte to be counted", func() error {
			if n := tun.moved(); n != last+2 { // received from one end, acknowledged by the other
				return fmt.Errorf("direction %d: %d, was %d", i, n, last)
			}
			return nil
		})
		last = tun.moved()
	}
	server.Close()
}

// TestClose: Listener.Close lets streams continue. Server.Close resets them, and Serve
// fails after it.
func TestClose(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{}, a.addr)
	client, server := s.pair(a)
	if err := s.ln.Close(); err != nil {
		t.Fatal(err)
	}
	if nc, err := net.Dial("tcp", s.addr); err == nil {
		nc.Close()
		t.Error("a closed listener accepts")
	}
	_, _ = io.WriteString(client, "still open")
	if _, err := io.ReadFull(server, make([]byte, 10)); err != nil {
		t.Errorf("a stream after its listener was closed: %v", err)
	}
	if err := s.srv.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantReset(t, "the client", client)
	wantReset(t, "the server", server)
	if _, err := listen(s.srv); !errors.Is(err, ErrClosed) {
		t.Errorf("Serve after Close: %v", err)
	}
	server.Close()
	s.counts.waitIdle()
}
