package stream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol/link"
)

// events is an application that sends events until its caller leaves, which it
// tells of in gone.
type events struct {
	*httptest.Server
	gone chan struct{}
}

func newEvents(t *testing.T) *events {
	e := &events{gone: make(chan struct{}, 16)}
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: first\n\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		e.gone <- struct{}{}
	}))
	t.Cleanup(e.Close)
	return e
}

// listen has a client get events, the first of which is here.
func (c *chain) listen() *http.Response {
	c.t.Helper()
	resp, err := c.client.Get("http://" + c.addr + "/")
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { resp.Body.Close() })
	readUntil(c.t, resp.Body, "data: first\n\n")
	return resp
}

// TestChainEvents: an event arrives when it is sent, and the application learns
// at once that nobody listens any more.
func TestChainEvents(t *testing.T) {
	app := newEvents(t)
	test := func(t *testing.T, c *chain) {
		for range 3 {
			resp := c.listen()
			if !resp.Close {
				t.Error("no Connection: close")
			}
			resp.Body.Close()
			receive(t, app.gone, "the application to hear of it")
		}
	}
	linked(t, chainOptions{more: "timeouts: {idle: 1h}"}, test, app.Listener.Addr().String())
	linked(t, chainOptions{sidecars: 3}, test, app.Listener.Addr().String())
}

// TestChainPauses: an answer that makes pauses is passed on as it comes, and one
// that ends when it might have been taken for a stream arrives whole.
func TestChainPauses(t *testing.T) {
	goOn := make(chan struct{})
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "first ")
		w.(http.Flusher).Flush()
		if late, err := time.ParseDuration(r.Header.Get("Late")); err == nil {
			time.Sleep(late) // the moment is the point
		} else {
			<-goOn
		}
		_, _ = io.WriteString(w, "second")
	}))
	defer app.Close()
	linked(t, chainOptions{}, func(t *testing.T, c *chain) {
		resp, err := c.client.Get("http://" + c.addr + "/")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		readUntil(t, resp.Body, "first ")
		goOn <- struct{}{}
		if rest, err := io.ReadAll(resp.Body); string(rest) != "second" || err != nil {
			t.Errorf("read on: %q, %v", rest, err)
		}
		got := make(chan error)
		const requests = 40
		for i := range requests {
			go func() {
				r, _ := http.NewRequest("GET", "http://"+c.addr+"/", nil)
				r.Header.Set("Late", fmt.Sprint(80*time.Millisecond+time.Duration(i)*time.Millisecond))
				resp, err := c.client.Do(r)
				if err != nil {
					got <- err
					return
				}
				defer resp.Body.Close()
				b, err := io.ReadAll(resp.Body)
				if string(b) != "first second" {
					err = errors.Join(err, fmt.Errorf("read %q", b))
				}
				got <- err
			}()
		}
		for range requests {
			if err := receive(t, got, "an answer"); err != nil {
				t.Error(err)
			}
		}
	}, app.Listener.Addr().String())
}

// TestChainHedged: of a hedged GET the attempt that answers with a stream wins;
// the stream that the other answers with later is not taken, and the account is
// even.
func TestChainHedged(t *testing.T) {
	var asked atomic.Int32
	won, lost := make(chan struct{}), make(chan struct{})
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		loser := asked.Add(1)%2 == 1
		if loser {
			<-won
		}
		w.Header().Set("Content-Length", fmt.Sprint(4*longest))
		_, _ = w.Write(bytes.Repeat([]byte("x"), 4*longest))
		if loser {
			lost <- struct{}{}
		}
	})
	one, other := httptest.NewServer(handler), httptest.NewServer(handler)
	defer one.Close()
	defer other.Close()
	for _, sidecars := range []int{1, 2} {
		c := newChain(t, chainOptions{
			sidecars: sidecars, service: "hedge: {mode: on, delay: 20ms, budget: 1}",
		}, one.Listener.Addr().String(), other.Listener.Addr().String())
		for range 4 {
			resp, err := c.client.Get("http://" + c.addr + "/")
			if err != nil {
				t.Fatal(err)
			}
			if n, err := io.Copy(io.Discard, resp.Body); n != 4*longest || err != nil {
				t.Errorf("%d bytes, %v", n, err)
			}
			resp.Body.Close()
			won <- struct{}{}
			receive(t, lost, "the loser to end")
		}
		c.over()
	}
}

// TestChainEarlyAnswer: an application may answer, and leave, while the request
// is still being sent.
func TestChainEarlyAnswer(t *testing.T) {
	a := newApp(t)
	linked(t, chainOptions{}, func(t *testing.T, c *chain) {
		client := c.dial()
		_, _ = fmt.Fprintf(client, "PUT / HTTP/1.1\r\nHost: app\r\nContent-Length: %d\r\n\r\n", 1<<30)
		done := make(chan error, 1)
		go func() {
			_, err := io.CopyN(client, zeros{}, 1<<30)
			done <- err
		}()
		server := receive(t, a.conns, "the connection")
		readUntil(t, server, "\r\n\r\n\x00")
		_, _ = io.WriteString(server, "HTTP/1.1 413 Large\r\nContent-Length: 2\r\n\r\nno")
		head := readUntil(t, client, "\r\n\r\nno")
		if !strings.HasPrefix(head, "HTTP/1.1 413 ") || !strings.Contains(head, "Connection: close\r\n") {
			t.Errorf("read %q", head)
		}
		server.Close()
		if err := receive(t, done, "the client to be stopped"); err == nil {
			t.Error("1 GiB was sent that nobody wanted")
		}
		client.Close()
	}, a.addr)
}

// TestChainPipelined: what turns its connection into a stream has its turn behind
// the requests before it.
func TestChainPipelined(t *testing.T) {
	a := newApp(t)
	const first = "GET /first HTTP/1.1\r\nHost: app\r\n\r\n"
	length := fmt.Sprintf("Content-Length: %d\r\n\r\n", longest+4)
	linked(t, chainOptions{}, func(t *testing.T, c *chain) {
		for _, second := range []string{
			"PUT / HTTP/1.1\r\nHost: app\r\n" + length,
			"CONNECT app:1 HTTP/1.1\r\nHost: app:1\r\n\r\n",
			ask,
		} {
			client := c.dial()
			_, _ = io.WriteString(client, first+second+"early")
			server := receive(t, a.conns, "the first request")
			readUntil(t, server, "\r\n\r\n")
			_, _ = io.WriteString(server, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nfirst")
			server.Close()
			readUntil(t, client, "\r\n\r\nfirst")
			server = receive(t, a.conns, "the second request")
			if strings.HasPrefix(second, "GET") {
				readUntil(t, server, "\r\n\r\n")
				_, _ = io.WriteString(server, "HTTP/1.1 101 S\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n")
			}
			readUntil(t, server, "early")
			if !strings.HasPrefix(second, "PUT") {
				readUntil(t, client, "\r\n\r\n")
				_, _ = io.WriteString(server, "bytes")
				readUntil(t, client, "bytes")
			}
			client.Close()
			wantGoneOrEnd(t, server)
			server.Close()
		}
	}, a.addr)
}

// wantGoneOrEnd reads to the end of a connection, however it comes.
func wantGoneOrEnd(t *testing.T, from net.Conn) {
	t.Helper()
	var ne net.Error
	if _, err := io.Copy(io.Discard, from); errors.As(err, &ne) && ne.Timeout() {
		t.Error("no end came")
	}
}

// TestChainFull: with limits.buffered reached, streams are refused in words, by
// either sidecar. An answer whose request was let in still arrives.
func TestChainFull(t *testing.T) {
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, io.MultiReader(r.Body, io.LimitReader(zeros{}, 4*longest)))
	}))
	defer app.Close()
	linked(t, chainOptions{}, func(t *testing.T, c *chain) {
		for i, s := range c.nodes {
			limit := int(s.srv.opt.Config.Limits.Buffered)
			s.proc.Hold(limit)
			resp, err := c.client.Post("http://"+c.addr+"/", "", io.LimitReader(zeros{}, 2*longest))
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != 503 || resp.Header.Get("X-Remora-Error") != "overloaded" {
				t.Errorf("sidecar %d: status %d, %v", i, resp.StatusCode, resp.Header)
			}
			resp, err = c.client.Get("http://" + c.addr + "/")
			if err != nil {
				t.Fatal(err)
			}
			if n, err := io.Copy(io.Discard, resp.Body); n != 4*longest || err != nil {
				t.Errorf("sidecar %d: %d bytes, %v", i, n, err)
			}
			resp.Body.Close()
			s.proc.Hold(-limit)
		}
	}, app.Listener.Addr().String())
}

// TestChainParkedFull: with as many answers parked as may be, one more is too
// long, and its application is not kept waiting.
func TestChainParkedFull(t *testing.T) {
	app := newEvents(t)
	linked(t, chainOptions{}, func(t *testing.T, c *chain) {
		s := c.nodes[1].srv
		fill := func(change func(link.Token)) {
			s.mu.Lock()
			defer s.mu.Unlock()
			for i := range maxParked {
				change(link.Token{byte(i), byte(i >> 8)})
			}
		}
		fill(func(token link.Token) { s.parked[token] = nil })
		resp, err := c.client.Get("http://" + c.addr + "/")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != 502 || resp.Header.Get("X-Remora-Error") != "response-too-large" {
			t.Errorf("status %d, %v", resp.StatusCode, resp.Header)
		}
		receive(t, app.gone, "the application to hear of it")
		fill(func(token link.Token) { delete(s.parked, token) })
		c.listen().Body.Close()
		receive(t, app.gone, "the application to hear of it")
	}, app.Listener.Addr().String())
}

// TestChainUnknownToken: a token that was never issued gets nothing but a reason.
func TestChainUnknownToken(t *testing.T) {
	a := newApp(t)
	linked(t, chainOptions{}, func(t *testing.T, c *chain) {
		nc := c.peer()
		_, _ = nc.Write(link.AppendStream(nil, &link.Stream{Kind: link.StreamAnswer, TimeLeft: patience, Token: link.Token{7}}))
		if got, err := io.ReadAll(nc); len(got) != 1 || got[0] != byte(link.DeadlinePassed) || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		nc.Close()
	}, a.addr)
}

// peer is a connection to the second sidecar, as the first makes them.
func (c *chain) peer() net.Conn {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	sock, err := c.nodes[0].engine.DialSocket(ctx, c.nodes[1].addr, "app")
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { sock.Close() })
	nc := endOf(sock).conn
	_ = nc.SetDeadline(time.Now().Add(patience))
	return nc
}

// TestChainTunnelEnds: between sidecars an end is an end and a reset a reset, and
// a connection that breaks off without TLS's own end is no end either.
func TestChainTunnelEnds(t *testing.T) {
	a := newApp(t)
	linked(t, chainOptions{}, func(t *testing.T, c *chain) {
		tunnel := func() (client, server *net.TCPConn) {
			client = c.dial()
			_, _ = io.WriteString(client, "CONNECT app:1 HTTP/1.1\r\nHost: app:1\r\n\r\n")
			readUntil(t, client, connected)
			return client, receive(t, a.conns, "the connection")
		}
		client, server := tunnel()
		_, _ = io.WriteString(client, "question")
		_ = client.CloseWrite()
		if got, err := io.ReadAll(server); string(got) != "question" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		_, _ = io.WriteString(server, "answer")
		server.Close()
		if got, err := io.ReadAll(client); string(got) != "answer" || err != nil {
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

// pairs are the streams that are open.
func (s *Server) pairs() map[*pair]struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[*pair]struct{}{}
	for p := range s.open {
		all[p] = struct{}{}
	}
	return all
}

// TestChainClose: the end of either sidecar cuts every kind of stream so that
// both ends can tell, and leaves nothing.
func TestChainClose(t *testing.T) {
	for i, name := range []string{"first", "second"} {
		t.Run(name, func(t *testing.T) {
			linked(t, chainOptions{}, func(t *testing.T, c *chain) {
				app := newApp(t)
				c.nodes[1].replace(app.addr)
				upload, download, tunnel := c.dial(), c.dial(), c.dial()
				_, _ = fmt.Fprintf(upload, "PUT / HTTP/1.1\r\nHost: app\r\nContent-Length: %d\r\n\r\nbody", 1<<30)
				_, _ = io.WriteString(download, "GET / HTTP/1.1\r\nHost: app\r\n\r\n")
				_, _ = io.WriteString(tunnel, "CONNECT app:1 HTTP/1.1\r\nHost: app:1\r\n\r\n")
				readUntil(t, tunnel, connected)
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

// replace gives the last sidecar of a chain another application.
func (s *sidecar) replace(addr string) {
	s.update(endpoint(addr))
}

// TestChainDrain: a drain lets streams go on, also an answer that is fetched when
// it has begun, and takes no new ones.
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

// TestChainIdle: a stream in which nothing moves is cut, so that its client can
// tell; one whose client is slow is not.
func TestChainIdle(t *testing.T) {
	app := newEvents(t)
	linked(t, chainOptions{more: "timeouts: {idle: 300ms}"}, func(t *testing.T, c *chain) {
		resp := c.listen()
		if rest, err := io.ReadAll(resp.Body); err == nil {
			t.Errorf("an end that looks complete: %q", rest)
		}
		receive(t, app.gone, "the application to hear of it")
	}, app.Listener.Addr().String())
}

// TestResetTold: a reset that a write was told of is one for the other end too,
// though the connection then reads like one that has ended.
func TestResetTold(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{})
	dial := func() (own *end, other *net.TCPConn) {
		own = &end{}
		own.tcp = s.dialTo(a.addr)
		own.conn = own.tcp
		return own, receive(t, a.conns, "the connection")
	}
	down, client := dial()
	up, server := dial()
	(&end{conn: server, tcp: server}).reset()
	s.eventually("the reset to arrive", func() error {
		if !up.dead() {
			return errors.New("not yet")
		}
		return nil
	})
	if _, err := up.Write([]byte("x")); err == nil {
		t.Fatal("a write after a reset")
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		(&pair{srv: s.srv, down: down, up: up}).relay(nil)
	}()
	wantReset(t, "the client", client)
	client.Close()
	receive(t, done, "the relay to end")
}
