package stream

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// TestBodies: requests and responses of some MiB arrive whole, with a length and in
// chunks, with their trailers.
func TestBodies(t *testing.T) {
	const size = 3<<20 + 17
	sent := bytes.Repeat([]byte("0123456789abcde"), size/15+1)[:size]
	app := handle(t, func(w http.ResponseWriter, r *http.Request) {
		got, err := io.ReadAll(r.Body)
		if err != nil || r.Header.Get("Chunked") != "" && r.Trailer.Get("Sum") != "t" {
			http.Error(w, fmt.Sprint(err, r.Trailer), 400)
			return
		}
		if r.Header.Get("Chunked") == "" {
			w.Header().Set("Content-Length", fmt.Sprint(len(got)))
		} else {
			w.Header().Set("Trailer", "Sum")
		}
		_, _ = w.Write(got)
		if r.Header.Get("Chunked") != "" {
			w.Header().Set("Sum", "back")
		}
	})
	withSidecars(t, app, func(t *testing.T, s *sidecar) {
		addr := s.entry.requestAddr()
		for _, chunks := range []bool{false, true} {
			r, _ := http.NewRequest("PUT", "http://"+addr+"/", bytes.NewReader(sent))
			if chunks {
				r.ContentLength = -1
				r.Header.Set("Chunked", "yes")
				r.Trailer = http.Header{"Sum": {"t"}}
			}
			client := http.Client{Timeout: waitLimit, Transport: &http.Transport{DisableKeepAlives: true}}
			resp, err := client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || sha256.Sum256(got) != sha256.Sum256(sent) {
				t.Errorf("chunks %v: status %d, %d bytes, %v", chunks, resp.StatusCode, len(got), err)
			}
			if chunks && resp.Trailer.Get("Sum") != "back" {
				t.Errorf("trailers %v", resp.Trailer)
			}
			if via := resp.Header["Via"]; len(via) != 1 {
				t.Errorf("Via %q", via)
			}
		}
	})
}

// TestResponses: interim responses, events and early responses arrive when they are
// sent, and a broken response differs from a complete one.
func TestResponses(t *testing.T) {
	const put = "PUT /a HTTP/1.1\r\nHost: app\r\nContent-Length: 4\r\n"
	a := newApp(t)
	withSidecars(t, a.addr, func(t *testing.T, s *sidecar) {
		addr := s.entry.requestAddr()
		begin := func(request string) (client, server *net.TCPConn, from *bufio.Reader) {
			client = s.dialTo(addr)
			_, _ = io.WriteString(client, request)
			server = receive(t, a.conns, "the connection")
			from = bufio.NewReader(server)
			if _, err := http.ReadRequest(from); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { server.Close() })
			return client, server, from
		}
		read := func(client net.Conn, want string) {
			t.Helper()
			wantRead(t, "the client", client, want)
		}

		client, server, from := begin(put + "Expect: 100-continue\r\n\r\n")
		_, _ = io.WriteString(server, "HTTP/1.1 100 Continue\r\n\r\n")
		read(client, "HTTP/1.1 100 Continue\r\n\r\n")
		_, _ = io.WriteString(client, "body")
		if _, err := io.ReadFull(from, make([]byte, 4)); err != nil {
			t.Error(err)
		}
		_, _ = io.WriteString(server, "HTTP/1.1 200 OK\r\nDate: x\r\nContent-Type: text/event-stream\r\n\r\n")
		read(client, "HTTP/1.1 200 OK\r\nDate: x\r\nContent-Type: text/event-stream\r\nVia: 1.1 remora\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n")
		for i := range 3 {
			event := fmt.Sprintf("data: %d\n\n", i)
			_, _ = io.WriteString(server, event)
			read(client, fmt.Sprintf("%x\r\n%s\r\n", len(event), event))
		}
		client.Close()
		wantGone(t, "the application of a client that left", from)

		client, server, _ = begin(put + "\r\nbo")
		_, _ = io.WriteString(server, "HTTP/1.1 413 Large\r\nDate: x\r\nContent-Length: 2\r\n\r\nno")
		got, err := io.ReadAll(client)
		if !strings.HasSuffix(string(got), "\r\n\r\nno") || err != nil {
			t.Errorf("an early response: %q, %v", got, err)
		}

		client, server, _ = begin(put + "\r\nbody")
		_, _ = io.WriteString(server, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n")
		for r := bufio.NewReader(client); ; {
			if line, err := r.ReadString('\n'); err != nil {
				t.Fatal(err)
			} else if line == "half\r\n" {
				break
			}
		}
		server.Close()
		wantReset(t, "the client of an endpoint that died", client)

		client, _, from = begin("PUT /a HTTP/1.1\r\nHost: app\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n")
		got, err = io.ReadAll(client)
		if !bytes.Contains(got, []byte("HTTP/1.1 400 ")) || err != nil {
			t.Errorf("malformed chunks: %q, %v", got, err)
		}
		wantGone(t, "the application of malformed chunks", from)

		client, server, _ = begin(put + "\r\nbody")
		_, _ = io.WriteString(server, "HTTP/1.1 101 S\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n")
		if got, err = io.ReadAll(client); !bytes.Contains(got, []byte("upstream-malformed")) || err != nil {
			t.Errorf("101: %q, %v", got, err)
		}
	})
}

// TestUnsafeResponse: a response that can't be sent once it is edited fails, before the client has got any of it.
func TestUnsafeResponse(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{}, a.addr)
	client := s.dialTo(acceptEach(t, func(nc *net.TCPConn) {
		r := &downstream.StreamRequest{
			Opener: s.srv.worker(), Service: "app", Timeout: waitLimit, Minor: 1, Kind: stats.StreamBody,
			Head: []byte("GET / HTTP/1.1\r\nHost: app\r\n\r\n"), Buffer: buffers.Get(0),
			Edit: func(res *protocol.Response) { res.Reason = []byte("two\r\nlines") },
		}
		r.Body.Reset(&http1.Head{}, s.srv.limits())
		s.srv.Request(socket{nc}, r)
	}))
	server := receive(t, a.conns, "the connection")
	defer server.Close()
	wantRead(t, "the application", server, "GET / HTTP/1.1\r\n")
	_, _ = io.WriteString(server, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	resp, err := http.ReadResponse(bufio.NewReader(client), nil)
	if err != nil {
		t.Fatal(err)
	}
	wantError(t, "the client", resp, 502, "upstream-malformed")
	client.Close()
	s.counts.waitNoStreams()
}

// wantGone checks that a connection ends with an error.
func wantGone(t *testing.T, who string, from io.Reader) {
	t.Helper()
	if _, err := io.Copy(io.Discard, from); err == nil {
		t.Errorf("%s reads an end of file", who)
	} else if ne, ok := err.(net.Error); ok && ne.Timeout() {
		t.Errorf("%s reads no end", who)
	}
}
