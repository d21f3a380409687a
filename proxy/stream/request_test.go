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
	"sync/atomic"
	"testing"
	"time"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
	"github.com/remora-proxy/remora/registry"
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

// quietEnd is a connection of TLS: the end of its output is not one of TCP.
type quietEnd struct{ socket }

func (quietEnd) CloseWrite() error { return nil }

// awaits is a check for onlyPair: the stream is in the state want.
func awaits(want pairState) func(p *pair) bool {
	return func(p *pair) bool {
		state, _ := p.states()
		return state == want
	}
}

// TestEndOfResponse: the client sees the end of its response at once, also if it has ended its own side before.
func TestEndOfResponse(t *testing.T) {
	for _, ended := range []bool{false, true} {
		a := newApp(t)
		s := newSidecar(t, options{more: "timeouts: {half_close: 1h}"}, a.addr)
		s.srv.flush = time.Hour
		client := s.dialTo(acceptEach(t, func(nc *net.TCPConn) {
			down := loop.Socket(socket{nc})
			if ended {
				down = quietEnd{socket{nc}}
			}
			s.srv.Request(down, s.put(http1.Head{Framing: http1.FixedLength, Length: 4}))
		}))
		server := receive(t, a.conns, "the connection")
		_, _ = io.WriteString(client, "body")
		readUntil(t, server, "\r\n\r\nbody")
		s.onlyPair("the request to be known to be whole", awaits(awaitingHead))
		if ended {
			_ = client.CloseWrite()
			s.onlyPair("the end of the client's side to be seen", func(p *pair) bool {
				_, client := p.states()
				return client == clientEnded
			})
		}
		_, _ = io.WriteString(server, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwhole")
		if all, err := io.ReadAll(client); !strings.HasSuffix(string(all), "\r\n\r\nwhole") || err != nil {
			t.Errorf("the client got %q, %v", all, err)
		}
		if rest, err := io.ReadAll(server); len(rest) > 0 || err != nil {
			t.Errorf("the application got %q, %v", rest, err)
		}
		server.Close()
		client.Close()
		s.counts.waitIdle()
	}
}

// TestMalformedWhileSought: a request that turns out to be malformed while another endpoint is sought for it does not go there.
func TestMalformedWhileSought(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{}, a.addr)
	dialling, release := make(chan struct{}), make(chan struct{})
	s.dialBy(func(n int32, nc socket) (loop.Socket, error) {
		if n == 2 {
			close(dialling)
			<-release
		}
		return nc, nil
	})
	client := s.dialTo(acceptEach(t, func(nc *net.TCPConn) {
		r := s.put(http1.Head{Framing: http1.Chunked})
		r.Repeats = 1
		s.srv.Request(socket{nc}, r)
	}))
	_, _ = io.WriteString(client, "5\r\nfirst\r\n")
	server := receive(t, a.conns, "the connection")
	readUntil(t, server, "5\r\nfirst\r\n")
	(&end{conn: server, tcp: server}).reset()
	receive(t, dialling, "another dial")
	_, _ = io.WriteString(client, "malformed\r\n")
	s.onlyPair("the body to end", func(p *pair) bool {
		_, client := p.states()
		return client == clientUploaded
	})
	_, _ = io.WriteString(client, "more")
	s.onlyPair("the rest to be dropped", func(p *pair) bool {
		c := p.down.counters()
		return c.received == uint64(len("5\r\nfirst\r\nmalformed\r\nmore")) && c.unread == 0
	})
	close(release)
	resp, err := http.ReadResponse(bufio.NewReader(client), nil)
	if err != nil {
		t.Fatal(err)
	}
	wantError(t, "the client", resp, fault.BadRequest.Status, fault.BadRequest.Code)
	wantReset(t, "the other endpoint", receive(t, a.conns, "the other connection"))
	client.Close()
	s.counts.waitIdle()
}

// TestBrokenUpload: an endpoint that takes no more of a request must respond within its timeout. At the next one the timeout begins
// when the client has sent all.
func TestBrokenUpload(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{}, a.addr)
	var broken atomic.Bool
	s.dialBy(func(n int32, nc socket) (loop.Socket, error) {
		if n == 1 {
			return breakable{nc, &broken}, nil
		}
		return nc, nil
	})
	client := s.dialTo(acceptEach(t, func(nc *net.TCPConn) {
		r := s.put(http1.Head{Framing: http1.Chunked})
		r.Repeats = 1
		s.srv.Request(socket{nc}, r)
	}))
	_, _ = io.WriteString(client, "5\r\nfirst\r\n")
	first := receive(t, a.conns, "the connection")
	readUntil(t, first, "5\r\nfirst\r\n")
	broken.Store(true)
	_, _ = io.WriteString(client, "6\r\nsecond\r\n")
	s.onlyPair("the response to be awaited", awaits(awaitingHead))
	(&end{conn: first, tcp: first}).reset()
	second := receive(t, a.conns, "another connection")
	if got := readUntil(t, second, "6\r\nsecond\r\n"); !strings.HasSuffix(got, "\r\n\r\n5\r\nfirst\r\n6\r\nsecond\r\n") {
		t.Errorf("the other endpoint got %q", got)
	}
	for p := range s.srv.pairs() {
		if state, _ := p.states(); state != opening {
			t.Errorf("the stream is in state %d while the client sends", state)
		}
	}
	_, _ = io.WriteString(client, "0\r\n\r\n")
	readUntil(t, second, "0\r\n\r\n")
	s.onlyPair("the response to be awaited", awaits(awaitingHead))
	_, _ = io.WriteString(second, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	readUntil(t, client, "\r\n\r\nok")
	client.Close()
	second.Close()
	s.counts.waitIdle()
}

// TestDeafClient: a client to which nothing can be written loses its stream, whatever is written first, and so does the endpoint.
func TestDeafClient(t *testing.T) {
	for _, c := range []struct {
		name     string
		kind     stats.StreamKind
		response string // of the endpoint; "" means that the sidecar speaks first
		grpc     string // the code in the access log
	}{
		{"response", stats.StreamBody, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "cancelled"},
		{"interim response", stats.StreamBody, "HTTP/1.1 103 Early Hints\r\n\r\n", ""},
		{"upgrade", stats.StreamWebSocket, upgraded, ""},
		{"tunnel", stats.StreamConnect, "", ""},
		{"answer", stats.StreamBody, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := newApp(t)
			s := newSidecar(t, options{more: "access_log: {path: /log}"}, a.addr)
			record := s.srv.worker().StreamRecord("in", "client", "app")
			var client *net.TCPConn
			var server net.Conn
			if c.name == "answer" {
				src, app := s.entry.source(a, http1.Head{Framing: http1.FixedLength, Length: 100}, "early")
				src.Record, server = record, app
				client = s.dialTo(acceptEach(t, func(nc *net.TCPConn) {
					_, _ = io.ReadFull(nc, make([]byte, 1)) // so that no reset comes before dialTo returns
					s.srv.Answer(unwritable{socket{nc}}, &downstream.StreamAnswer{Head: []byte("head"), Source: src, Opener: s.srv.worker()})
				}))
				_, _ = io.WriteString(client, "x")
			} else {
				client = s.dialTo(acceptEach(t, func(nc *net.TCPConn) {
					_, _ = io.ReadFull(nc, make([]byte, 1)) // likewise
					r := s.put(http1.Head{Framing: http1.FixedLength, Length: 4})
					r.Kind, r.Record, r.GRPC = c.kind, record, c.grpc != ""
					if c.kind == stats.StreamWebSocket {
						r.Protocols = []byte("websocket")
					}
					s.srv.Request(unwritable{socket{nc}}, r)
				}))
				_, _ = io.WriteString(client, "x")
				server = receive(t, a.conns, "the connection")
				if c.response != "" {
					readUntil(t, server, "\r\n\r\n")
					_, _ = io.WriteString(server, c.response)
				}
			}
			wantReset(t, "the endpoint", server)
			wantReset(t, "the client", client)
			server.Close()
			s.counts.waitIdle()
			if l := s.log.line(0); l.Outcome != "cut" || l.BytesOut != 0 || c.grpc != "" && l.GRPC != c.grpc {
				t.Errorf("%+v", l)
			}
		})
	}
}

// TestIncompleteUpload: a client that has not sent all of its request gets the whole response, however late it reads, and the endpoint
// is told that the request is not whole.
func TestIncompleteUpload(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{}, a.addr)
	s.srv.flush = time.Millisecond
	client := s.dialTo(acceptEach(t, func(nc *net.TCPConn) {
		s.srv.Request(socket{nc}, s.put(http1.Head{Framing: http1.FixedLength, Length: 100}))
	}))
	_, _ = io.WriteString(client, "part")
	server := receive(t, a.conns, "the connection")
	readUntil(t, server, "\r\n\r\npart")
	_, _ = io.WriteString(server, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwhole")
	wantReset(t, "the endpoint", server)
	s.counts.waitIdle()
	if all, err := io.ReadAll(client); !strings.HasSuffix(string(all), "\r\n\r\nwhole") || err != nil {
		t.Errorf("the client got %q, %v", all, err)
	}
	client.Close()
	server.Close()
}

// slowBody is a connection to which a body is written only after release.
type slowBody struct {
	socket
	release chan struct{}
}

func (c slowBody) Write(b []byte) (int, error) {
	if string(b) == "whole" {
		<-c.release
	}
	return c.socket.Write(b)
}

// TestResponseBeforeBody: an endpoint that has responded before it has got the body is told that the request is not whole, although
// all of that has come.
func TestResponseBeforeBody(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{}, a.addr)
	release := make(chan struct{})
	s.dialBy(func(_ int32, nc socket) (loop.Socket, error) { return slowBody{nc, release}, nil })
	client := s.dialTo(acceptEach(t, func(nc *net.TCPConn) {
		r := s.put(http1.Head{Framing: http1.FixedLength, Length: 5})
		if _, _, err := r.Body.Decode([]byte("whole"), r.Buffer); err != nil {
			t.Error(err)
		}
		s.srv.Request(socket{nc}, r)
	}))
	server := receive(t, a.conns, "the connection")
	readUntil(t, server, "\r\n\r\n")
	_, _ = io.WriteString(server, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	readUntil(t, client, "\r\n\r\nok")
	wantReset(t, "the endpoint", server)
	close(release)
	client.Close()
	server.Close()
	s.counts.waitIdle()
}

// TestRefusedBySidecar: a sidecar that refuses a request loses its connection, and another one gets the request.
func TestRefusedBySidecar(t *testing.T) {
	a, b := newApp(t), newApp(t)
	s := newSidecar(t, options{})
	s.update(registry.Endpoint{Addr: a.addr, Weight: 1, Protocol: config.ProtocolLink}, registry.Endpoint{Addr: b.addr, Weight: 1, Protocol: config.ProtocolLink})
	client := s.dialTo(acceptEach(t, func(nc *net.TCPConn) {
		s.srv.Request(socket{nc}, s.put(http1.Head{Framing: http1.FixedLength, Length: 4}))
	}))
	_, _ = io.WriteString(client, "body")
	first := either(t, a, b)
	readUntil(t, first, "\r\n\r\nbody")
	_, _ = io.WriteString(first, "HTTP/1.1 503 Unavailable\r\nX-Remora-Error: draining\r\nContent-Length: 0\r\n\r\n")
	wantReset(t, "the first sidecar", first)
	second := either(t, a, b)
	readUntil(t, second, "\r\n\r\nbody")
	_, _ = io.WriteString(second, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	readUntil(t, client, "\r\n\r\nok")
	for _, c := range []net.Conn{first, second, client} {
		c.Close()
	}
	s.counts.waitIdle()
}

// TestNoResponseInTime: an endpoint must respond within the timeout once it has got the whole request, or takes no more of it.
func TestNoResponseInTime(t *testing.T) {
	for _, breaks := range []bool{false, true} {
		a := newApp(t)
		s := newSidecar(t, options{}, a.addr)
		var broken atomic.Bool
		s.dialBy(func(_ int32, nc socket) (loop.Socket, error) { return breakable{nc, &broken}, nil })
		client := s.dialTo(acceptEach(t, func(nc *net.TCPConn) {
			r := s.put(http1.Head{Framing: http1.Chunked})
			r.Timeout = 500 * time.Millisecond
			s.srv.Request(socket{nc}, r)
		}))
		server := receive(t, a.conns, "the connection")
		const size = maxKept + 100 // no other endpoint can get it
		_, _ = client.Write(http1.AppendChunk(nil, make([]byte, size)))
		readUntil(t, server, "\r\n\r\n")
		for got := 0; got < size; {
			n, err := server.Read(make([]byte, size))
			if got += n; err != nil {
				t.Fatal(err)
			}
		}
		broken.Store(breaks)
		if breaks {
			_, _ = io.WriteString(client, "4\r\nmore\r\n")
		} else {
			_, _ = io.WriteString(client, "0\r\n\r\n")
		}
		resp, err := http.ReadResponse(bufio.NewReader(client), nil)
		if err != nil {
			t.Fatal(err)
		}
		wantError(t, "the client", resp, fault.Deadline.Status, fault.Deadline.Code)
		client.Close()
		server.Close()
		s.counts.waitIdle()
	}
}

// TestNoDeadlineOfBody: the deadlines of heads do not hold for what follows them.
func TestNoDeadlineOfBody(t *testing.T) {
	const interim = "HTTP/1.1 103 Early Hints\r\n\r\n"
	for name, c := range map[string]struct{ request, interim, response string }{
		"body":          {"PUT / HTTP/1.1\r\nHost: app\r\nContent-Length: 4\r\n\r\nbody", interim, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n"},
		"upgrade":       {upgradeHead + "body", interim, upgraded},
		"tunnel":        {"", "", ""},
		"other sidecar": {"PUT / HTTP/1.1\r\nHost: app\r\nContent-Length: 4\r\n\r\nbody", interim, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			a := newApp(t)
			s := newSidecar(t, options{}, a.addr)
			if name == "other sidecar" {
				s.update(registry.Endpoint{Addr: a.addr, Weight: 1, Protocol: config.ProtocolLink})
			}
			ends := make(chan bounded, 2)
			kept := func(nc socket) loop.Socket {
				b := newBounded(nc)
				ends <- b
				return b
			}
			s.dialBy(func(_ int32, nc socket) (loop.Socket, error) { return kept(nc), nil })
			kind := link.StreamHTTP
			if c.request == "" {
				kind = link.StreamOpaque
			}
			client := s.dialTo(acceptEach(t, func(nc *net.TCPConn) {
				s.srv.Accept(kept(socket{nc}), &downstream.StreamAccept{Opener: s.srv.worker(), Service: "app", Timeout: waitLimit, Stream: link.Stream{Kind: kind}})
			}))
			_, _ = io.WriteString(client, c.request)
			server := receive(t, a.conns, "the connection")
			if c.request != "" {
				readUntil(t, server, "body")
				_, _ = io.WriteString(server, c.interim)
				readUntil(t, client, "\r\n\r\n")
				_, _ = io.WriteString(server, c.response)
				readUntil(t, client, "\r\n\r\n")
			} else {
				wantRead(t, "the client", client, string([]byte{link.StreamTaken}))
			}
			_, _ = io.WriteString(server, "x")
			wantRead(t, "the client", client, "x")
			for range 2 {
				b := receive(t, ends, "an end")
				for what, at := range map[string]*time.Time{"reads": b.read.Load(), "writes": b.write.Load()} {
					if at != nil && !at.IsZero() {
						t.Errorf("%s at %s have a deadline", what, b.LocalAddr())
					}
				}
			}
			client.Close()
			server.Close()
			s.counts.waitIdle()
		})
	}
}

// TestRequestMemory: all memory of a request counts from the start.
func TestRequestMemory(t *testing.T) {
	s := newSidecar(t, options{})
	r := s.put(http1.Head{Framing: http1.Chunked})
	r.Head, r.Rest = make([]byte, 10), make([]byte, 100)
	r.Buffer = &bytebufferpool.ByteBuffer{B: make([]byte, 100_000)}
	x := newRequestStream(&pair{srv: s.srv}, r)
	if got, want := s.proc.Held(), int64(10+100+protocol.Held(r.Buffer)); got != want || want < 100_000 {
		t.Errorf("%d bytes count, want %d", got, want)
	}
	for range 2 {
		x.release()
		x.releaseHead()
	}
	s.counts.wantNoMemory()
}
