package stream

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/fair"
	"github.com/remora-proxy/remora/proxy/fair/share"
	"github.com/remora-proxy/remora/proxy/fault"
)

// TestChainMemoryLimit: when limits.buffered is reached, either sidecar refuses streams
// with an error response. The response to an accepted request still arrives.
func TestChainMemoryLimit(t *testing.T) {
	app := handle(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, io.MultiReader(r.Body, io.LimitReader(zeros{}, 4*longest)))
	})
	linked(t, chainOptions{}, func(t *testing.T, c *chain) {
		for i, s := range c.nodes {
			limit := int(s.srv.opt.Process.Config().Limits.Buffered)
			s.proc.Charge(limit)
			resp, err := c.client.Post("http://"+c.addr+"/", "", io.LimitReader(zeros{}, 2*longest))
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			wantError(t, fmt.Sprint("sidecar ", i), resp, 503, "overloaded")
			resp, err = c.client.Get("http://" + c.addr + "/")
			if err != nil {
				t.Fatal(err)
			}
			if n, err := io.Copy(io.Discard, resp.Body); n != 4*longest || err != nil {
				t.Errorf("sidecar %d: %d bytes, %v", i, n, err)
			}
			resp.Body.Close()
			s.proc.Charge(-limit)
		}
	}, app)
}

// TestChainParkedLimit: when as many responses of a sidecar are parked as there may be streams, its next
// one is refused as too large, and its application is disconnected at once.
func TestChainParkedLimit(t *testing.T) {
	app := newEvents(t)
	linked(t, chainOptions{}, func(t *testing.T, c *chain) {
		s := c.nodes[1].srv
		_, most := s.Places()
		s.parking.places.Resize(most)
		var all []*fair.Place
		local := netip.MustParseAddr("127.0.0.1") // both the consumer and its client
		for range most {
			all = append(all, s.parking.places.Take(share.Source{Peer: local, Client: local}, func() { t.Error("a response lost its place") }))
		}
		resp, err := c.client.Get("http://" + c.addr + "/")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		wantError(t, "one more", resp, 502, "response-too-large")
		receive(t, app.gone, "the application to be disconnected")
		for _, p := range all {
			p.Release()
		}
		c.listen().Body.Close()
		receive(t, app.gone, "the application to be disconnected")
	}, app.Listener.Addr().String())
}

// TestChainUnknownToken: a token that was never issued is refused with a reason.
func TestChainUnknownToken(t *testing.T) {
	a := newApp(t)
	linked(t, chainOptions{}, func(t *testing.T, c *chain) {
		nc := c.peer()
		_, _ = nc.Write(link.AppendStream(nil, &link.Stream{Kind: link.StreamAnswer, TimeLeft: waitLimit, Token: link.Token{7}}))
		if got, err := io.ReadAll(nc); len(got) != 1 || got[0] != byte(link.DeadlinePassed) || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		nc.Close()
	}, a.addr)
}

// peer returns a connection to the second sidecar, as the first one would open it.
func (c *chain) peer() net.Conn {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	sock, err := c.nodes[0].reactor.SocketDialer().Dial(ctx, c.nodes[1].addr, "app", "", nil)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { sock.Close() })
	nc := endOf(sock).conn
	_ = nc.SetDeadline(time.Now().Add(waitLimit))
	return nc
}

// TestChainTunnelEnds: an end of file passes two sidecars as one, and a reset as one. A
// TLS connection that ends without close_notify is a reset.
func TestChainTunnelEnds(t *testing.T) {
	a := newApp(t)
	linked(t, chainOptions{}, func(t *testing.T, c *chain) {
		tunnel := func() (client, server *net.TCPConn) {
			client = c.dial()
			_, _ = io.WriteString(client, "CONNECT bytes:1 HTTP/1.1\r\nHost: bytes:1\r\n\r\n")
			readUntil(t, client, downstream.Connected)
			return client, receive(t, a.conns, "the connection")
		}
		client, server := tunnel()
		_, _ = io.WriteString(client, "question")
		_ = client.CloseWrite()
		if got, err := io.ReadAll(server); string(got) != "question" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		_, _ = io.WriteString(server, "server")
		server.Close()
		if got, err := io.ReadAll(client); string(got) != "server" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		client.Close()
		client, server = tunnel()
		(&end{conn: server, tcp: server}).reset()
		wantReset(t, "the client", client)
		client, server = tunnel()
		(&end{conn: client, tcp: client}).reset()
		wantReset(t, "the server", server)
		server.Close()
		if !c.secure {
			return
		}
		client, server = tunnel()
		for p := range c.nodes[1].srv.pairs() {
			_ = p.down.tcp.CloseWrite() // without a close_notify
		}
		wantReset(t, "the client of a connection broken off", client)
		server.Close()
	}, a.addr)
}

// pairs returns the open streams.
func (s *Server) pairs() map[*pair]struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[*pair]struct{}{}
	for p := range s.open {
		all[p] = struct{}{}
	}
	return all
}

// TestChainClose: closing either sidecar resets both ends of every kind of stream, and
// nothing is left over.
func TestChainClose(t *testing.T) {
	for i, name := range []string{"first", "second"} {
		t.Run(name, func(t *testing.T) {
			linked(t, chainOptions{}, func(t *testing.T, c *chain) {
				app := newApp(t)
				c.nodes[1].update(endpoint(app.addr))
				upload, download, tunnel := c.dial(), c.dial(), c.dial()
				_, _ = fmt.Fprintf(upload, "PUT / HTTP/1.1\r\nHost: app\r\nContent-Length: %d\r\n\r\nbody", 1<<30)
				_, _ = io.WriteString(download, "GET / HTTP/1.1\r\nHost: app\r\n\r\n")
				_, _ = io.WriteString(tunnel, "CONNECT bytes:1 HTTP/1.1\r\nHost: bytes:1\r\n\r\n")
				readUntil(t, tunnel, downstream.Connected)
				var servers []*net.TCPConn
				for range 3 {
					server := receive(t, app.conns, "a connection")
					_, _ = io.WriteString(server, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nevent one")
					servers = append(servers, server)
				}
				for _, client := range []net.Conn{upload, download, tunnel} {
					readUntil(t, client, "event one")
				}
				if err := c.nodes[i].srv.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
				for _, nc := range append(servers, upload, download, tunnel) {
					wantGone(t, "an end", nc)
					nc.Close()
				}
			})
		})
	}
}

// TestChainDrain: during a drain open streams continue, also a response that is fetched
// only after the drain began.
func TestChainDrain(t *testing.T) {
	a := newApp(t)
	linked(t, chainOptions{}, func(t *testing.T, c *chain) {
		upload, download := c.dial(), c.dial()
		length := longest + 4
		_, _ = fmt.Fprintf(upload, "PUT / HTTP/1.1\r\nHost: app\r\nContent-Length: %d\r\n\r\n", length)
		server := receive(t, a.conns, "the upload")
		readUntil(t, server, "\r\n\r\n")
		_, _ = io.WriteString(download, "GET / HTTP/1.1\r\nHost: app\r\n\r\n")
		source := receive(t, a.conns, "the download")
		readUntil(t, source, "\r\n\r\n")
		for _, s := range c.nodes {
			s.proc.Drain()
		}
		_, _ = io.CopyN(upload, zeros{}, int64(length))
		_, _ = io.CopyN(io.Discard, server, int64(length))
		_, _ = io.WriteString(server, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone")
		readUntil(t, upload, "\r\n\r\ndone")
		_, _ = io.WriteString(source, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
		_, _ = io.WriteString(source, "event one")
		readUntil(t, download, "event one")
		source.Close()
		readUntil(t, download, "0\r\n\r\n")
		for _, nc := range []net.Conn{upload, download, server} {
			nc.Close()
		}
	}, a.addr)
}

// TestChainIdle: a stream without progress is reset at timeouts.idle.
func TestChainIdle(t *testing.T) {
	app := newEvents(t)
	linked(t, chainOptions{more: "timeouts: {idle: 300ms}"}, func(t *testing.T, c *chain) {
		resp := c.listen()
		if rest, err := io.ReadAll(resp.Body); err == nil {
			t.Errorf("an end that looks complete: %q", rest)
		}
		receive(t, app.gone, "the application to be disconnected")
	}, app.Listener.Addr().String())
}

// TestChainSlowReader: a client that reads slowly is not idle.
func TestChainSlowReader(t *testing.T) {
	const idle, size = 2 * time.Second, int64(64 << 20)
	app := handle(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(size))
		_, _ = io.CopyN(w, zeros{}, size)
	})
	c := newChain(t, chainOptions{more: "timeouts: {idle: 2s}"}, app)
	read := func() (got int64, pause time.Duration, _ error) {
		client := c.dial()
		defer client.Close()
		_ = client.SetReadBuffer(64 << 10)
		_, _ = io.WriteString(client, "GET / HTTP/1.1\r\nHost: app\r\n\r\n")
		readUntil(t, client, "\r\n\r\n")
		for began, last := time.Now(), time.Now(); time.Since(began) < 2*idle; time.Sleep(20 * time.Millisecond) {
			n, err := io.CopyN(io.Discard, client, 128<<10)
			got += n
			if pause, last = max(pause, time.Since(last)), time.Now(); err != nil {
				return got, pause, err
			}
		}
		if got >= size/2 {
			t.Fatalf("%d bytes were read, too many for a slow reader", got)
		}
		n, err := io.Copy(io.Discard, client)
		if got += n; err == nil && got != size {
			err = io.ErrUnexpectedEOF
		}
		return got, pause, err
	}
	// A busy machine may keep the client from reading for so long: then the test begins anew.
	eventually.Nil(t, "a client to read without a pause", func() error {
		got, pause, err := read()
		if err != nil && pause < idle/4 {
			t.Fatalf("%v after %d bytes of %d, the longest pause was %v", err, got, size, pause)
		}
		return err
	})
	c.waitNoStreams()
}

// TestTunnelMemoryLimit: a tunnel that needs no buffer opens although limits.buffered is
// reached.
func TestTunnelMemoryLimit(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{}, a.addr)
	limit := int(s.srv.opt.Process.Config().Limits.Buffered)
	s.proc.Charge(limit)
	defer s.proc.Charge(-limit)
	client, server := s.pair(a)
	_, _ = io.WriteString(client, "bytes")
	wantRead(t, "the server", server, "bytes")
	client.Close()
	server.Close()
	s.counts.waitIdle()
}

// TestFetchFailed: a response that could not be fetched is counted as a failure.
func TestFetchFailed(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{}, a.addr)
	for at, f := range map[string]*fault.Failure{s.entry.linkAddr(): fault.Deadline, refusingAddr(t): fault.Reset} {
		b := s.inFront()
		client := b.fetch(at, link.Token{7}, http1.Head{Framing: http1.Chunked})
		resp, err := http.ReadResponse(bufio.NewReader(client), nil)
		if err != nil {
			t.Fatal(err)
		}
		wantError(t, "the client", resp, f.Status, f.Code)
		client.Close()
		b.counts.waitIdle()
		if sum, failures := b.counts.totals(); sum.StreamsFailed != 1 || failures[f.Code] != 1 || len(failures) != 1 {
			t.Errorf("%d failed, %v", sum.StreamsFailed, failures)
		}
	}
}
