package stream

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/mux/httpstream"
	"github.com/remora-proxy/remora/registry"
)

// talk has both sides of a call talk, and end it.
func talk(t *testing.T, client *peer, app net.Conn) {
	t.Helper()
	readUntil(t, app, "5\r\nfirst\r\n")
	client.to.Data([]byte("second"))
	readUntil(t, app, "6\r\nsecond\r\n")
	_, _ = io.WriteString(app, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
	client.want(httpstream.Head)
	client.wantBody("hello")
	client.to.End(nil)
	readUntil(t, app, "0\r\n\r\n")
	_, _ = io.WriteString(app, "0\r\n\r\n")
	client.want(httpstream.End)
	client.wantState(loop.PipeClosed)
	app.Close()
}

// TestDrainingTakesNoStream: a sidecar that drains refuses a stream before it does anything, so that
// another endpoint gets the stream. One that drains alone says so.
func TestDrainingTakesNoStream(t *testing.T) {
	a := newApp(t)
	c := newChain(t, chainOptions{}, a.addr)
	first, draining := c.nodes[0], c.nodes[1]
	call := func() *peer {
		client := first.entry.call(first.proc.Workers()[0], grpc)
		client.to.Data([]byte("first"))
		return client
	}
	draining.proc.Drain()
	alone := call()
	alone.want(httpstream.Head)
	if got := string(alone.Failure()); got != fault.Draining.Code {
		t.Errorf("alone, it fails with %q", got)
	}
	alone.pipe.Close(nil)

	other := c.start(&chainOptions{}, 1, nil)
	other.update(endpoint(a.addr))
	other.addr = other.listen(&other.proc.Config().Listeners[0], nil)
	var list []registry.Endpoint
	for _, s := range []*sidecar{draining, other} {
		list = append(list, registry.Endpoint{Addr: s.addr, Weight: 1, Protocol: config.ProtocolLink})
	}
	first.update(list...)
	_, before := draining.counts.totals()
	for range 16 { // the chance that the draining sidecar is never asked is 1 in 65536
		client := call()
		talk(t, client, receive(t, a.conns, "the connection"))
	}
	if _, now := draining.counts.totals(); now[fault.Draining.Code] == before[fault.Draining.Code] {
		t.Error("the draining sidecar was not asked")
	}
	first.counts.waitNoStreams()
}

// http2App is an endpoint that speaks HTTP/2, and lets a test answer.
type http2App struct {
	t *testing.T
	net.Conn
	*http2.Framer
}

func (a *http2App) next(want http2.FrameType) http2.Frame {
	a.t.Helper()
	for {
		f, err := a.ReadFrame()
		if err != nil {
			a.t.Fatalf("%v, want a frame of type %s", err, want)
		}
		if f.Header().Type == want {
			return f
		}
	}
}

// acceptHTTP2 takes the next connection.
func (a *app) acceptHTTP2(t *testing.T) *http2App {
	t.Helper()
	nc := receive(t, a.conns, "the connection")
	wantRead(t, "the endpoint", nc, http2.ClientPreface)
	h := &http2App{t, nc, http2.NewFramer(nc, nc)}
	_ = h.WriteSettings()
	return h
}

func (a *http2App) respond(stream uint32) {
	var b bytes.Buffer
	_ = hpack.NewEncoder(&b).WriteField(hpack.HeaderField{Name: ":status", Value: "200"})
	_ = a.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: b.Bytes(), EndHeaders: true})
}

func (a *http2App) refuse(stream uint32) { _ = a.WriteRSTStream(stream, http2.ErrCodeRefusedStream) }

// received reads the next request until its body has n bytes, and returns its stream.
func (a *http2App) received(n int) (stream uint32, body string) {
	a.t.Helper()
	stream = a.next(http2.FrameHeaders).Header().StreamID
	for len(body) < n {
		body += string(a.next(http2.FrameData).(*http2.DataFrame).Data())
	}
	return stream, body
}

// refused has an endpoint, which is alone, get a request with n bytes of a body, and refuse it.
func refused(t *testing.T, n int, refuse func(h *http2App, stream uint32)) (s *sidecar, a *app, h *http2App, client *peer) {
	a = newApp(t)
	s = newSidecar(t, options{})
	s.proc.SetStreams(s.srv)
	s.update(registry.Endpoint{Addr: a.addr, Weight: 1, Protocol: config.ProtocolHTTP2})
	client = s.entry.call(s.proc.Workers()[0], grpc)
	client.to.Data([]byte(strings.Repeat("x", n)))
	h = a.acceptHTTP2(t)
	stream, _ := h.received(n)
	refuse(h, stream)
	return s, a, h, client
}

// TestRefusedStream: a stream that an endpoint refuses, by a reset or since it goes away, is tried
// again. The endpoint gets all of it.
func TestRefusedStream(t *testing.T) {
	goesAway := func(h *http2App, _ uint32) { _ = h.WriteGoAway(0, http2.ErrCodeNo, nil) }
	for name, c := range map[string]struct {
		sent   int
		refuse func(h *http2App, stream uint32)
	}{
		"reset":                        {5, (*http2App).refuse},
		"goes away":                    {5, goesAway},
		"goes away behind 65000 bytes": {65_000, goesAway}, // as much as is kept, almost
	} {
		t.Run(name, func(t *testing.T) {
			s, a, h, client := refused(t, c.sent, c.refuse)
			client.to.Data([]byte("second"))
			if strings.HasPrefix(name, "goes away") {
				h = a.acceptHTTP2(t)
			}
			want := strings.Repeat("x", c.sent) + "second"
			stream, body := h.received(len(want))
			if body != want {
				t.Errorf("the request has %d bytes, want %d", len(body), len(want))
			}
			h.respond(stream)
			_ = h.WriteData(stream, true, []byte("hello"))
			client.want(httpstream.Head)
			client.wantBody("hello")
			client.want(httpstream.End)
			client.wantState(loop.PipeClosed)
			s.counts.waitNoStreams()
		})
	}
}

// TestRefusedForGood: a stream that the endpoint may have begun with, or of which more was sent than is
// kept, is not tried again.
func TestRefusedForGood(t *testing.T) {
	for name, c := range map[string]struct {
		sent   int
		refuse func(h *http2App, stream uint32)
		want   *fault.Failure // nil means that the response is cut off
	}{
		"for another reason": {5, func(h *http2App, stream uint32) { _ = h.WriteRSTStream(stream, http2.ErrCodeInternal) }, fault.Reset},
		"after the head":     {5, func(h *http2App, stream uint32) { h.respond(stream); h.refuse(stream) }, nil},
		"too much sent":      {1<<16 - 1, (*http2App).refuse, fault.Refused}, // that and its framing is more
		"too often": {5, func(h *http2App, stream uint32) {
			for range 2 {
				h.refuse(stream)
				stream, _ = h.received(5)
			}
			h.refuse(stream)
		}, fault.Refused},
	} {
		t.Run(name, func(t *testing.T) {
			s, _, h, client := refused(t, c.sent, c.refuse)
			e := client.next()
			switch {
			case c.want != nil:
				if got := string(client.Failure()); e != httpstream.Head || got != c.want.Code {
					t.Errorf("event %d, failure %q, want %q", e, got, c.want.Code)
				}
			case e == httpstream.Head: // the response may arrive before it is cut off
				client.want(httpstream.Broken)
			case e != httpstream.Broken:
				t.Errorf("event %d", e)
			}
			client.pipe.Close(nil)
			s.counts.waitNoStreams()
			_ = h.WritePing(false, [8]byte{})
			for f := http2.Frame(nil); f == nil || f.Header().Type != http2.FramePing; {
				var err error
				if f, err = h.ReadFrame(); err != nil || f.Header().Type == http2.FrameHeaders {
					t.Fatalf("%v, %v after the refusal", f, err)
				}
			}
		})
	}
}

// TestRepeated: a request that may be sent again reaches another endpoint after the first was lost,
// as often as it may. No other request does.
func TestRepeated(t *testing.T) {
	for _, c := range []struct{ repeats, losses int }{{0, 1}, {1, 1}, {1, 2}, {2, 2}} {
		t.Run(fmt.Sprintf("%d losses of %d", c.losses, c.repeats), func(t *testing.T) {
			a := newApp(t)
			s := newSidecar(t, options{}, a.addr)
			client := s.entry.callRepeated(s.proc.Workers()[0], grpc, c.repeats)
			client.to.Data([]byte("first"))
			for range c.losses {
				app := receive(t, a.conns, "the connection")
				readUntil(t, app, "5\r\nfirst\r\n")
				(&end{conn: app, tcp: app}).reset()
			}
			if c.losses <= c.repeats {
				talk(t, client, receive(t, a.conns, "the connection"))
			} else {
				client.want(httpstream.Head)
				if got := string(client.Failure()); got != fault.Reset.Code {
					t.Errorf("failure %q", got)
				}
				client.pipe.Close(nil)
			}
			s.counts.waitNoStreams()
		})
	}
}

// TestRepeatedThenRefused: an endpoint that was lost may have carried out the request, so it did not
// stay without effect though the next endpoint refuses it.
func TestRepeatedThenRefused(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{}, a.addr)
	client := s.entry.callRepeated(s.proc.Workers()[0], grpc, 1)
	client.to.Data([]byte("first"))
	app := receive(t, a.conns, "the connection")
	readUntil(t, app, "5\r\nfirst\r\n")
	refusing := refusingAddr(t)
	s.update(endpoint(refusing))
	(&end{conn: app, tcp: app}).reset()
	client.want(httpstream.Head)
	if got := string(client.Failure()); got != fault.Reset.Code {
		t.Errorf("failure %q", got)
	}
	client.pipe.Close(nil)
	s.counts.waitNoStreams()
	s.counts.wantFailure(fault.Reset.Code)
}

// TestRepeatedThenRefusedForGood: the same if the next endpoint refuses the request when more was sent than is kept.
func TestRepeatedThenRefusedForGood(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{})
	s.proc.SetStreams(s.srv)
	s.update(registry.Endpoint{Addr: a.addr, Weight: 1, Protocol: config.ProtocolHTTP2})
	client := s.entry.callRepeated(s.proc.Workers()[0], grpc, 1)
	client.to.Data([]byte("first"))
	h := a.acceptHTTP2(t)
	h.received(len("first"))
	app := h.Conn.(*net.TCPConn)
	(&end{conn: app, tcp: app}).reset()
	h = a.acceptHTTP2(t)
	const window = 1<<16 - 1
	client.to.Data(make([]byte, window-len("first")))
	stream, _ := h.received(window)
	h.refuse(stream)
	client.want(httpstream.Head)
	if got := string(client.Failure()); got != fault.Reset.Code {
		t.Errorf("failure %q", got)
	}
	client.pipe.Close(nil)
	s.counts.waitNoStreams()
}

// shortConn is a connection that keeps what is written, until it is broken.
type shortConn struct {
	conn
	kept   []byte
	broken bool
}

func (c *shortConn) Write(b []byte) (int, error) {
	if c.broken {
		return 0, io.ErrClosedPipe
	}
	c.kept = append(c.kept, b...)
	return len(b), nil
}

// TestReplayOfFailedWrite: what could not be written to an endpoint is lost only if no other endpoint gets the request. The write
// waits until that is known.
func TestReplayOfFailedWrite(t *testing.T) {
	s := newSidecar(t, options{})
	for _, again := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			first, second := &shortConn{}, &shortConn{}
			broken, written := 0, make(chan error, 1)
			r := newReplay(s.proc, []byte{'h', 'e', 'a', 'd'}, func() { broken++ })
			r.resume(&end{conn: first})
			first.broken = true
			go func() { written <- r.write([]byte("more")) }()
			synctest.Wait()
			if len(written) > 0 {
				t.Error("the write has ended before it is known what becomes of the request")
			}
			if n := s.proc.Held(); n < int64(len("headmore")) {
				t.Errorf("%d bytes count", n)
			}
			if again {
				if !r.suspend() {
					t.Error("no other endpoint may get the request")
				}
				later := make(chan error, 1)
				go func() { later <- r.write([]byte("last")) }()
				if synctest.Wait(); len(written) == 0 || len(later) > 0 {
					t.Errorf("while another endpoint is sought %d writes have ended, and %d of those that began then", len(written), len(later))
				}
				r.resume(&end{conn: second})
				if err := <-later; err != nil || string(second.kept) != "headmorelast" {
					t.Errorf("the second endpoint gets %q, %v", second.kept, err)
				}
			}
			r.settle()
			if err := <-written; (err == nil) != again {
				t.Errorf("another endpoint gets it: %t; %v", again, err)
			}
			if err := r.write([]byte("late")); (err == nil) != again {
				t.Errorf("another endpoint has got it: %t; a later write: %v", again, err)
			}
			if string(first.kept) != "head" || broken != 1 {
				t.Errorf("the first endpoint got %q, and the failure is told %d times", first.kept, broken)
			}
			if n := s.proc.Held(); n != 0 {
				t.Errorf("%d bytes still count", n)
			}
		})
	}
}

// TestReplayBound: another endpoint can get a request as long as no more than maxKept bytes are written behind its head.
func TestReplayBound(t *testing.T) {
	s := newSidecar(t, options{})
	r := newReplay(s.proc, []byte("head"), func() {})
	r.resume(&end{conn: &shortConn{}})
	for _, c := range []struct {
		more int
		want bool
	}{{maxKept, true}, {1, false}} {
		if err := r.write(make([]byte, c.more)); err != nil {
			t.Fatal(err)
		}
		if got := r.suspend(); got != c.want {
			t.Errorf("after %d more bytes another endpoint can get it: %t", c.more, got)
		}
		r.resume(&end{conn: &shortConn{}})
	}
	r.settle()
}
