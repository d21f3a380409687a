package stream

import (
	"bytes"
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
)

// events is an application that sends an event and then waits for its client to
// disconnect.
type events struct {
	*httptest.Server
	gone chan struct{} // receives a value for each client that has disconnected
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

// listen requests events and returns after the first one.
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

// TestChainEvents: an event arrives when it is sent, and a client that disconnects
// disconnects the application at once.
func TestChainEvents(t *testing.T) {
	app := newEvents(t)
	test := func(t *testing.T, c *chain) {
		for range 3 {
			resp := c.listen()
			if !resp.Close {
				t.Error("no Connection: close")
			}
			resp.Body.Close()
			receive(t, app.gone, "the application to be disconnected")
		}
	}
	linked(t, chainOptions{more: "timeouts: {idle: 1h}"}, test, app.Listener.Addr().String())
	linked(t, chainOptions{sidecars: 3}, test, app.Listener.Addr().String())
}

// TestChainPauses: a response with pauses is passed on while it arrives. One that ends
// just when the sidecar decides to make it a stream arrives whole.
func TestChainPauses(t *testing.T) {
	goOn := make(chan struct{})
	app := handle(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "first ")
		w.(http.Flusher).Flush()
		if late, err := time.ParseDuration(r.Header.Get("Late")); err == nil {
			time.Sleep(late) // near the moment of that decision
		} else {
			<-goOn
		}
		_, _ = io.WriteString(w, "second")
	})
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
			if err := receive(t, got, "a response"); err != nil {
				t.Error(err)
			}
		}
	}, app)
}

// TestChainHedged: of a hedged GET the first attempt that responds with a stream wins.
// The stream of the other attempt is discarded, and nothing stays in flight.
func TestChainHedged(t *testing.T) {
	var asked atomic.Int32
	won, lost := make(chan struct{}), make(chan struct{})
	handler := func(w http.ResponseWriter, r *http.Request) {
		loser := asked.Add(1)%2 == 1
		if loser {
			<-won
		}
		w.Header().Set("Content-Length", fmt.Sprint(4*longest))
		_, _ = w.Write(bytes.Repeat([]byte("x"), 4*longest))
		if loser {
			lost <- struct{}{}
		}
	}
	one, other := handle(t, handler), handle(t, handler)
	for _, sidecars := range []int{1, 2} {
		c := newChain(t, chainOptions{
			sidecars: sidecars, service: "hedge: {mode: on, delay: 20ms, budget: 1}",
		}, one, other)
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
		c.waitNoStreams()
	}
}

// TestChainEarlyResponse: an application may respond and close while the request is
// still being sent.
func TestChainEarlyResponse(t *testing.T) {
	a := newApp(t)
	linked(t, chainOptions{}, func(t *testing.T, c *chain) {
		client := c.dial()
		_, _ = fmt.Fprintf(client, "PUT / HTTP/1.1\r\nHost: app\r\nContent-Length: %d\r\n\r\n", 1<<40)
		done := make(chan error, 1)
		go func() {
			_, err := io.CopyN(client, zeros{}, 1<<40)
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
			t.Error("1 TiB was sent after the response")
		}
		client.Close()
	}, a.addr)
}

// TestChainPipelined: a pipelined request that makes its connection a stream starts
// after the requests before it.
func TestChainPipelined(t *testing.T) {
	a := newApp(t)
	const first = "GET /first HTTP/1.1\r\nHost: app\r\n\r\n"
	length := fmt.Sprintf("Content-Length: %d\r\n\r\n", longest+4)
	linked(t, chainOptions{}, func(t *testing.T, c *chain) {
		for _, second := range []string{
			"PUT / HTTP/1.1\r\nHost: app\r\n" + length,
			"CONNECT bytes:1 HTTP/1.1\r\nHost: bytes:1\r\n\r\n",
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
			wantClosed(t, server)
			server.Close()
		}
	}, a.addr)
}

// wantClosed reads until an end of file or a reset.
func wantClosed(t *testing.T, from net.Conn) {
	t.Helper()
	var ne net.Error
	if _, err := io.Copy(io.Discard, from); errors.As(err, &ne) && ne.Timeout() {
		t.Error("the connection did not end")
	}
}
