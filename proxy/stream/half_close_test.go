package stream

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol/http1"
)

// TestHalfClosedClient: a client that has ended its side gets its response while any of it comes within
// timeouts.half_close. Otherwise, and after a reset, the client has left, and the application sees that.
func TestHalfClosedClient(t *testing.T) {
	const long, short = "timeouts: {half_close: 1h}", "timeouts: {half_close: 50ms}"
	a := newApp(t)
	const head = "HTTP/1.1 200 OK\r\nDate: x\r\n\r\n"
	for _, c := range []struct {
		name, setting string
		says          string // by the application, before anything else happens
		leave         func(client *end)
		gone          bool
	}{
		{"before the response", long, "", nil, false},
		{"within the response", long, head + "a", nil, false},
		{"no response in time", short, "", nil, true},
		{"no more of the response in time", short, head + "a", nil, true},
		{"reset before the response", long, "", (*end).reset, true},
		{"reset within the response", long, head + "a", (*end).reset, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSidecar(t, options{more: c.setting}, a.addr)
			client := s.dialTo(s.entry.requestAddr())
			_, _ = io.WriteString(client, "PUT /a HTTP/1.0\r\nContent-Length: 4\r\n\r\nbody")
			server := receive(t, a.conns, "the connection")
			from := bufio.NewReader(server)
			r, err := http.ReadRequest(from)
			if err != nil {
				t.Fatal(err)
			}
			if body, err := io.ReadAll(r.Body); string(body) != "body" || err != nil {
				t.Errorf("%q, %v", body, err)
			}
			if c.says != "" {
				_, _ = io.WriteString(server, c.says)
				readUntil(t, client, "\r\n\r\na")
			}
			_ = client.CloseWrite()
			if c.leave != nil {
				c.leave(&end{conn: client, tcp: client})
			}
			if c.gone {
				wantGone(t, "the application", from)
				server.Close()
			} else {
				if c.says == "" {
					_, _ = io.WriteString(server, head)
				}
				_, _ = io.WriteString(server, "rest")
				server.Close()
				readUntil(t, client, "rest")
				if rest, err := io.ReadAll(client); len(rest) > 0 || err != nil {
					t.Errorf("%q follows, %v", rest, err)
				}
			}
			s.counts.waitIdle()
			s.counts.wantNoMemory()
		})
	}
}

// TestHalfClosedReader: a client that has ended its side, and goes on to read, outlasts timeouts.half_close. A
// busy machine may keep it from reading for so long: then the test begins anew.
func TestHalfClosedReader(t *testing.T) {
	const limit = 200 * time.Millisecond
	a := newApp(t)
	s := newSidecar(t, options{more: fmt.Sprintf("timeouts: {half_close: %s}", limit)}, a.addr)
	addr := s.entry.requestAddr()
	read := func() (n int, pause time.Duration, _ error) {
		client := s.dialTo(addr)
		_, _ = io.WriteString(client, "PUT /a HTTP/1.0\r\nContent-Length: 0\r\n\r\n")
		_ = client.CloseWrite()
		server := receive(t, a.conns, "the connection")
		defer server.Close()
		_, _ = io.WriteString(server, "HTTP/1.1 200 OK\r\n\r\n")
		readUntil(t, client, "\r\n\r\n")
		for began, last := time.Now(), time.Now(); time.Since(began) < 4*limit; n++ {
			_, _ = io.WriteString(server, "x")
			_, err := io.ReadFull(client, make([]byte, 1))
			if pause, last = max(pause, time.Since(last)), time.Now(); err != nil {
				return n, pause, err
			}
		}
		return n, pause, nil
	}
	s.eventually("a client to read without a pause", func() error {
		n, pause, err := read()
		if err != nil && pause < limit/4 {
			t.Fatalf("%v after %d bytes, the longest pause was %v", err, n, pause)
		}
		return err
	})
	s.counts.waitIdle()
}

// TestEndedWithoutReading: a client that has ended its side and reads nothing loses its stream.
func TestEndedWithoutReading(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{}, a.addr)
	client := s.dialTo(acceptEach(t, func(nc *net.TCPConn) {
		s.srv.Request(socket{nc}, s.put(http1.Head{Framing: http1.FixedLength, Length: 4}))
	}))
	_, _ = io.WriteString(client, "body")
	server := receive(t, a.conns, "the connection")
	readUntil(t, server, "\r\n\r\nbody")
	const size = 1 << 30
	_, _ = fmt.Fprintf(server, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", size)
	readUntil(t, client, "\r\n\r\n")
	if stall(t, server, size) == size {
		t.Fatal("all is sent")
	}
	_ = client.CloseWrite()
	wantReset(t, "the application", server)
	client.Close()
	server.Close()
	s.counts.waitIdle()
}
