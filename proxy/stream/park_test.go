package stream

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/fair"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/shard"
)

// fetch returns a client to which s responds with the body that is parked under token
// at address at.
func (s *sidecar) fetch(at string, token link.Token, h http1.Head) *net.TCPConn {
	s.t.Helper()
	streams := make(chan *race.Stream, 1)
	w := s.srv.worker()
	w.Open("app", func(st *race.Stream, _ race.Target, _ *fault.Failure) { streams <- st })
	src := &race.StreamSource{
		Addr: at, Service: "app", Token: token, Timeout: waitLimit,
		Buffer: bytebufferpool.Get(), Stream: receive(s.t, streams, "a stream"),
	}
	src.Stream.Connected(200)
	src.Body.Reset(&h, s.srv.limits())
	addr := acceptEach(s.t, func(nc *net.TCPConn) {
		s.srv.Answer(socket{nc}, &downstream.StreamAnswer{Head: []byte("head|"), Chunks: h.Framing == http1.Chunked, Source: src})
	})
	return s.dialTo(addr)
}

// TestFetched: the body of a response can be fetched once, whole, in both framings.
func TestFetched(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{}, a.addr)
	b, at := s.inFront(), s.entry.linkAddr()
	long := bytes.Repeat([]byte("x"), 2<<20)
	for _, h := range []http1.Head{
		{Framing: http1.FixedLength, Length: int64(len(long)) + 5}, {Framing: http1.UntilClose},
	} {
		src, server := s.entry.source(a, h, "early")
		token, ok := s.srv.Park(src, shard.Client{})
		if !ok {
			t.Fatal("not parked")
		}
		next := h
		if h.Framing == http1.UntilClose {
			next = http1.Head{Framing: http1.Chunked}
		}
		client := b.fetch(at, token, next)
		if next.Framing == http1.Chunked {
			wantRead(t, "the client", client, "head|5\r\nearly\r\n")
			_, _ = io.WriteString(server, "event")
			wantRead(t, "the client", client, "5\r\nevent\r\n")
			server.Close()
			wantRead(t, "the client", client, "0\r\n\r\n")
		} else {
			go func() { _, _ = server.Write(long) }()
			if got, err := io.ReadAll(client); string(got) != "head|early"+string(long) || err != nil {
				t.Errorf("%d bytes, %v", len(got), err)
			}
		}
		client.Close()
		server.Close()
		again := b.fetch(at, token, next)
		if got, err := io.ReadAll(again); !bytes.HasPrefix(got, []byte("HTTP/1.1 504 ")) || err != nil {
			t.Errorf("the token is valid twice: %q, %v", got, err)
		}
		again.Close()
	}
	src, server := s.entry.source(a, http1.Head{Framing: http1.UntilClose}, "early")
	token, _ := s.srv.Park(src, shard.Client{})
	client := b.fetch(at, token, http1.Head{Framing: http1.Chunked})
	wantRead(t, "the client", client, "head|5\r\nearly\r\n")
	client.Close()
	wantReset(t, "the application of a client that left", server)
	for _, s := range []*sidecar{b, s} {
		s.counts.waitIdle()
		s.counts.wantNoMemory()
	}
}

// TestParkedShare: a client whose sidecar fetches no response keeps no place from another: it loses the oldest.
func TestParkedShare(t *testing.T) {
	a := newApp(t)
	largest := shard.Client{Addr: "192.0.2.1:1", Behind: netip.MustParseAddr("198.51.100.1")}
	for name, other := range map[string]shard.Client{
		"of another sidecar":    {Addr: "192.0.2.2:1"},
		"of the same sidecar":   {Addr: "192.0.2.1:1", Behind: netip.MustParseAddr("198.51.100.2")},
		"that nobody has named": {Addr: "192.0.2.1:1"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSidecar(t, options{}, a.addr)
			_, most := s.srv.Places()
			s.srv.parking.places.Resize(most)
			src, oldest := s.entry.source(a, http1.Head{Framing: http1.UntilClose}, "x")
			if _, ok := s.srv.Park(src, largest); !ok {
				t.Fatal("not parked")
			}
			var rest []*fair.Place
			for range most - 1 {
				rest = append(rest, s.srv.parking.places.Take(largest.Source(), func() { t.Error("a younger one lost its place") }))
			}
			src, server := s.entry.source(a, http1.Head{Framing: http1.UntilClose}, "x")
			if _, ok := s.srv.Park(src, largest); ok {
				t.Error("parked, one past the limit")
			}
			src.Close()
			server.Close()
			src, server = s.entry.source(a, http1.Head{Framing: http1.UntilClose}, "x")
			token, ok := s.srv.Park(src, other)
			if !ok {
				t.Fatal("no place for another")
			}
			wantReset(t, "the application of the oldest", oldest)
			s.srv.parking.remove(token).discard()
			wantReset(t, "the application of the other", server)
			for _, p := range rest {
				p.Release()
			}
			if taken := s.srv.parking.places.Taken(); taken != 0 {
				t.Errorf("%d places are taken", taken)
			}
			s.counts.wantNoMemory()
			s.counts.waitIdle()
		})
	}
}

// TestParked: a response that is not fetched is discarded after its time, and by Close.
func TestParked(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{}, a.addr)
	s.srv.parking.expiry = 1
	src, server := s.entry.source(a, http1.Head{Framing: http1.UntilClose}, "x")
	if _, ok := s.srv.Park(src, shard.Client{}); !ok {
		t.Fatal("not parked")
	}
	wantReset(t, "the application whose response was not fetched", server)
	s.srv.parking.expiry = waitLimit
	src, server = s.entry.source(a, http1.Head{Framing: http1.UntilClose}, "x")
	if _, ok := s.srv.Park(src, shard.Client{}); !ok {
		t.Fatal("not parked")
	}
	if err := s.srv.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantReset(t, "the application of a server that closed", server)
	s.counts.wantNoMemory()
	s.counts.waitIdle()
}

// TestFetchDeadline: a process that fetches must send its token soon. It may then take any time.
func TestFetchDeadline(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{}, a.addr)
	src, server := s.entry.source(a, http1.Head{Framing: http1.UntilClose}, "early")
	token, ok := s.srv.Park(src, shard.Client{})
	if !ok {
		t.Fatal("not parked")
	}
	began, ends := time.Now(), make(chan bounded, 1)
	client := s.dialTo(acceptEach(t, func(nc *net.TCPConn) {
		b := newBounded(socket{nc})
		ends <- b
		s.srv.parking.serveFetch(&pair{srv: s.srv, down: &end{conn: b, tcp: nc}})
	}))
	down := receive(t, ends, "the connection")
	s.eventually("the token to have a deadline", func() error {
		if at := down.read.Load(); at == nil || at.Before(began) {
			return errors.New("none")
		}
		return nil
	})
	_, _ = client.Write(token[:])
	readUntil(t, client, "early\r\n")
	if at := down.read.Load(); !at.IsZero() {
		t.Errorf("the response has the deadline %s", at)
	}
	client.Close()
	server.Close()
	s.counts.waitIdle()
}
