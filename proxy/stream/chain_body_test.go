package stream

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// mirror responds with the request's body in the same framing.
var mirror = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	got, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), 400)
		return
	}
	if r.ContentLength >= 0 {
		w.Header().Set("Content-Length", fmt.Sprint(len(got)))
	} else {
		w.Header().Set("Trailer", "Sum")
	}
	_, _ = w.Write(got)
	if r.ContentLength < 0 {
		w.Header().Set("Sum", r.Trailer.Get("Sum"))
	}
})

// wantMirrored sends a body, checks that it comes back, and reports whether the response
// closed its connection.
func (c *chain) wantMirrored(body []byte, chunks bool) (last bool) {
	c.t.Helper()
	r, _ := http.NewRequest("PUT", "http://"+c.addr+"/", bytes.NewReader(body))
	if chunks {
		r.ContentLength = -1
		r.Trailer = http.Header{"Sum": {"trailer"}}
	}
	resp, err := c.client.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 || sha256.Sum256(got) != sha256.Sum256(body) {
		c.t.Errorf("%d bytes, chunks %v: status %d, %d bytes, %v", len(body), chunks, resp.StatusCode, len(got), err)
	}
	if sum := resp.Trailer.Get("Sum"); chunks && sum != "trailer" {
		c.t.Errorf("trailer %q", sum)
	}
	return resp.Close
}

// TestChainBodies: bodies longer than a message arrive whole, in both framings, over two
// and three sidecars. The response closes the client's connection.
func TestChainBodies(t *testing.T) {
	app := handle(t, mirror)
	long := bytes.Repeat([]byte("0123456789abcde"), 200_001)
	test := func(t *testing.T, c *chain) {
		for _, chunks := range []bool{false, true} {
			if c.wantMirrored(long[:1000], chunks) {
				t.Error("a message ends its connection")
			}
			if !c.wantMirrored(long, chunks) {
				t.Error("no Connection: close in the response to a stream")
			}
		}
		if n := c.nodes[0].counts.handoffs(stats.Handoff(stats.StreamBody)); n != 2 {
			t.Errorf("%d requests left their loop", n)
		}
	}
	linked(t, chainOptions{}, test, app)
	linked(t, chainOptions{sidecars: 3}, test, app)
}

// stall writes at most limit bytes, until the peer takes no more, and returns how many
// it took.
func stall(t *testing.T, to net.Conn, limit int) (sent int) {
	t.Helper()
	defer to.SetWriteDeadline(time.Now().Add(waitLimit))
	block := make([]byte, 256<<10)
	for sent < limit {
		_ = to.SetWriteDeadline(time.Now().Add(500 * time.Millisecond))
		n, err := to.Write(block[:min(len(block), limit-sent)])
		sent += n
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return sent
}

// wantStalled checks that a sender was stopped before total bytes, and that the sidecars
// hold little of what it sent.
func (c *chain) wantStalled(sent, total int) {
	c.t.Helper()
	if sent >= total {
		c.t.Errorf("%d bytes were sent without a reader", sent)
	}
	for i, s := range c.nodes {
		if n := s.proc.Buffered(); n > 8*longest {
			c.t.Errorf("sidecar %d holds %d bytes", i, n)
		}
	}
}

// TestChainBackpressure: a receiver that does not read stalls the sender over all hops,
// in both directions. When it reads on, nothing is lost.
func TestChainBackpressure(t *testing.T) {
	const total = 160 << 20
	a := newApp(t)
	rest := func(to net.Conn, n int) {
		_, _ = io.CopyN(to, zeros{}, int64(n))
	}
	linked(t, chainOptions{}, func(t *testing.T, c *chain) {
		client := c.dial()
		_, _ = fmt.Fprintf(client, "PUT / HTTP/1.1\r\nHost: app\r\nContent-Length: %d\r\n\r\n", total)
		sent := stall(t, client, total)
		c.wantStalled(sent, total)
		server := receive(t, a.conns, "the connection")
		from := bufio.NewReader(server)
		r, err := http.ReadRequest(from)
		if err != nil {
			t.Fatal(err)
		}
		go rest(client, total-sent)
		if n, err := io.Copy(io.Discard, r.Body); n != total || err != nil {
			t.Errorf("%d bytes arrived, %v", n, err)
		}
		_, _ = fmt.Fprintf(server, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", total)
		sent = stall(t, server, total)
		c.wantStalled(sent, total)
		go rest(server, total-sent)
		resp, err := http.ReadResponse(bufio.NewReader(client), nil)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := io.Copy(io.Discard, resp.Body); n != total || err != nil {
			t.Errorf("received %d bytes, %v", n, err)
		}
		client.Close()
		server.Close()

		// A response to a message: parked, fetched, in chunks.
		client = c.dial()
		_, _ = io.WriteString(client, "GET / HTTP/1.1\r\nHost: app\r\n\r\n")
		server = receive(t, a.conns, "the connection")
		readUntil(t, server, "\r\n\r\n") // a close with unread input would be a reset
		_, _ = io.WriteString(server, "HTTP/1.1 200 OK\r\n\r\n")
		sent = stall(t, server, total)
		c.wantStalled(sent, total)
		server.Close()
		if resp, err = http.ReadResponse(bufio.NewReader(client), nil); err != nil {
			t.Fatal(err)
		}
		if n, err := io.Copy(io.Discard, resp.Body); n != int64(sent) || err != nil {
			t.Errorf("%d bytes arrived of %d, %v", n, sent, err)
		}
		client.Close()
	}, a.addr)
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// dial connects a client.
func (c *chain) dial() *net.TCPConn {
	c.t.Helper()
	return c.nodes[0].dial()
}

// TestChainCutShort: a response that the application cuts short or frames wrongly never
// looks complete, in either version of HTTP.
func TestChainCutShort(t *testing.T) {
	a := newApp(t)
	const begin = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nbegin\r\n"
	long := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\nbegin", longest+1)
	linked(t, chainOptions{}, func(t *testing.T, c *chain) {
		for _, minor := range []int{0, 1} {
			for name, response := range map[string][2]string{
				"length":          {long, ""},
				"chunk":           {begin, "5\r\nha"},
				"last chunk":      {begin, "0\r\n"},
				"size":            {begin, "xyz\r\n"},
				"end of a chunk":  {begin, "2\r\nabc\r\n0\r\n\r\n"},
				"huge":            {begin, "ffffffffffffffffff\r\n"},
				"forbidden field": {begin, "0\r\nbad field: x\r\n\r\n"},
			} {
				client := c.dial()
				_, _ = fmt.Fprintf(client, "GET / HTTP/1.%d\r\nHost: app\r\n\r\n", minor)
				server := receive(t, a.conns, "the connection")
				_, _ = io.WriteString(server, response[0])
				got := readUntil(t, client, "begin")
				_, _ = io.WriteString(server, response[1])
				server.Close()
				rest, err := io.ReadAll(client)
				got += string(rest)
				if err == nil || strings.Contains(got, "0\r\n\r\n") || !strings.HasPrefix(got, "HTTP/1.1 200 ") {
					t.Errorf("%s, HTTP/1.%d: %q, %v", name, minor, got, err)
				}
			}
		}
	}, a.addr)
}

// TestChainOrderlyEnd: an application that has sent its whole response reads an end of
// file. A reset would be logged as an error by many.
func TestChainOrderlyEnd(t *testing.T) {
	a := newApp(t)
	linked(t, chainOptions{}, func(t *testing.T, c *chain) {
		client := c.dial()
		_, _ = io.WriteString(client, "GET / HTTP/1.1\r\nHost: app\r\n\r\n")
		server := receive(t, a.conns, "the connection")
		readUntil(t, server, "\r\n\r\n")
		_, _ = fmt.Fprintf(server, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", longest+1)
		_, _ = server.Write(make([]byte, longest+1))
		if n, err := io.Copy(io.Discard, client); n < longest || err != nil {
			t.Errorf("%d bytes arrived, %v", n, err)
		}
		client.Close()
		if rest, err := io.ReadAll(server); len(rest) > 0 || err != nil {
			t.Errorf("the application read %q, %v", rest, err)
		}
		server.Close()
	}, a.addr)
}

// readUntil reads until what was read ends with want.
func readUntil(t *testing.T, from io.Reader, want string) (got string) {
	t.Helper()
	b := make([]byte, 1)
	for !strings.HasSuffix(got, want) {
		if _, err := io.ReadFull(from, b); err != nil {
			t.Fatalf("read %q, %v, want %q", got, err, want)
		}
		got += string(b)
	}
	return got
}

// TestChainHTTP10: an HTTP/1.0 client receives a stream without chunks, until its
// connection closes. A HEAD stays a message, whatever length its response announces.
func TestChainHTTP10(t *testing.T) {
	a := newApp(t)
	linked(t, chainOptions{}, func(t *testing.T, c *chain) {
		client := c.dial()
		_, _ = io.WriteString(client, "GET / HTTP/1.0\r\nHost: app\r\nConnection: keep-alive\r\n\r\n")
		server := receive(t, a.conns, "the connection")
		_, _ = io.WriteString(server, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n")
		if head := readUntil(t, client, "first"); strings.Contains(head, "chunked") || strings.Contains(head, "\n5\r\n") {
			t.Errorf("read %q", head)
		}
		_, _ = io.WriteString(server, "3\r\nend\r\n0\r\n\r\n")
		server.Close()
		if rest, err := io.ReadAll(client); string(rest) != "end" || err != nil {
			t.Errorf("%q, %v", rest, err)
		}
		client.Close()

		client = c.dial()
		for range 2 { // HEAD: on the same connection
			_, _ = io.WriteString(client, "HEAD / HTTP/1.1\r\nHost: app\r\n\r\n")
			server := receive(t, a.conns, "the connection")
			_, _ = io.WriteString(server, "HTTP/1.1 200 OK\r\nContent-Length: 1099511627776\r\nConnection: close\r\n\r\n")
			server.Close()
			if head := readUntil(t, client, "\r\n\r\n"); !strings.Contains(head, "Content-Length: 1099511627776\r\n") {
				t.Errorf("read %q", head)
			}
		}
		client.Close()
	}, a.addr)
}

// TestLengthAndTrailers: a request over HTTP/2 may have a length and trailers. HTTP/1.1 has trailers only behind chunks,
// so the length makes way for trailers that are announced, also if the body is a stream.
func TestLengthAndTrailers(t *testing.T) {
	app := handle(t, func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, n, r.ContentLength, r.Trailer, err)
	})
	for _, sidecars := range []int{1, 2} {
		c := newChain(t, chainOptions{sidecars: sidecars}, app)
		tr := &http.Transport{Protocols: new(http.Protocols)}
		tr.Protocols.SetUnencryptedHTTP2(true)
		for _, size := range []int{10, 10 * longest} {
			for _, x := range []struct {
				trailers http.Header
				want     string
			}{
				{nil, fmt.Sprint(size, size, http.Header(nil), nil)},
				{http.Header{"Sum": {"1"}}, fmt.Sprint(size, -1, http.Header{"Sum": {"1"}}, nil)},
			} {
				r, err := http.NewRequest("PUT", "http://"+c.addr+"/", bytes.NewReader(make([]byte, size)))
				if err != nil {
					t.Fatal(err)
				}
				r.Trailer = x.trailers
				resp, err := (&http.Client{Transport: tr, Timeout: waitLimit}).Do(r)
				if err != nil {
					t.Fatal(err)
				}
				got, err := io.ReadAll(resp.Body)
				if string(got) != x.want || err != nil {
					t.Errorf("%d sidecars, %d bytes: the application got %q, %v, want %q", sidecars, size, got, err, x.want)
				}
				_ = resp.Body.Close()
			}
		}
		tr.CloseIdleConnections()
		c.waitNoStreams()
	}
}
