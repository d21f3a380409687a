package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// TestPanics: a panic on a goroutine of a stream is counted, and resets the stream, which gives back what it holds.
// Others go on.
func TestPanics(t *testing.T) {
	const chunked = "POST / HTTP/1.1\r\nHost: app\r\nTransfer-Encoding: chunked\r\n\r\n"
	body := func(s *sidecar, nc *net.TCPConn) *downstream.StreamRequest {
		r := &downstream.StreamRequest{
			Opener: s.srv.worker(), Service: "app", Timeout: waitLimit, Minor: 1, Kind: stats.StreamBody, Head: []byte(chunked),
			Chunks: true, Rest: []byte("1\r\nx\r\n0\r\n\r\n"), Buffer: buffers.Get(0),
			Record: s.srv.worker().StreamRecord("in", "client", "app"), GRPC: true,
		}
		r.Body.Reset(&http1.Head{Framing: http1.Chunked}, s.srv.limits())
		return r
	}
	apps := map[*sidecar]*app{}
	for name, begin := range map[string]func(s *sidecar, nc *net.TCPConn){
		"stream": func(s *sidecar, nc *net.TCPConn) {
			r := body(s, nc)
			r.Opener = panickingOpener{r.Opener}
			s.srv.Request(socket{nc}, r)
		},
		"head": func(s *sidecar, nc *net.TCPConn) {
			s.srv.Accept(socket{nc}, &downstream.StreamAccept{
				Opener: panickingOpener{s.srv.worker()}, Service: "app", Timeout: waitLimit, Stream: link.Stream{Kind: link.StreamHTTP},
				Rest: []byte("GET / HTTP/1.1\r\nHost: app\r\n\r\n"), Record: s.srv.worker().StreamRecord("in", "client", "app"),
			})
		},
		"upload": func(s *sidecar, nc *net.TCPConn) {
			r := body(s, nc)
			r.Trailers = func([]protocol.Header) []protocol.Header { panic("boom") }
			s.srv.Request(socket{nc}, r)
		},
		"edit": func(s *sidecar, nc *net.TCPConn) {
			r := body(s, nc)
			r.Edit = func(*protocol.Response) { panic("boom") }
			s.srv.Request(socket{nc}, r)
			up := receive(t, apps[s].conns, "the connection of the request")
			_, _ = io.WriteString(up, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		},
		"dial": func(s *sidecar, nc *net.TCPConn) {
			dial := s.srv.opt.Dial
			s.srv.opt.Dial = func(context.Context, string, string, string, []byte) (loop.Socket, error) {
				s.srv.opt.Dial = dial
				panic("boom")
			}
			s.srv.Request(socket{nc}, body(s, nc))
		},
		"pass": func(s *sidecar, nc *net.TCPConn) {
			dial := s.srv.opt.Dial
			s.srv.opt.Dial = func(context.Context, string, string, string, []byte) (loop.Socket, error) {
				s.srv.opt.Dial = dial
				panic("boom")
			}
			s.srv.Pass("in", socket{nc}, netip.MustParseAddrPort(apps[s].addr), nil)
		},
		"write": func(s *sidecar, nc *net.TCPConn) {
			dial := s.srv.opt.Dial
			s.srv.opt.Dial = func(_ context.Context, addr, _, _ string, _ []byte) (loop.Socket, error) {
				s.srv.opt.Dial = dial
				up, err := net.Dial("tcp", addr)
				if err != nil {
					return nil, err
				}
				return panickingSocket{socket{up.(*net.TCPConn)}}, nil
			}
			s.srv.Request(socket{nc}, body(s, nc))
		},
		"tunnel": func(s *sidecar, nc *net.TCPConn) {
			p := s.srv.newClientPair(socket{nc})
			p.opener = s.srv.worker()
			tunnel := s.srv.newTunnel(p, "app", waitLimit)
			tunnel.relay.p = nil
			tunnel.record = s.srv.worker().StreamRecord("in", "client", "app")
			s.srv.start(p, tunnel.run)
		},
		"response": func(s *sidecar, nc *net.TCPConn) {
			streams := make(chan *race.Stream, 1)
			s.srv.worker().Open("app", func(st *race.Stream, _ race.Target, _ *fault.Failure) { streams <- st })
			st := receive(t, streams, "a stream")
			st.Connected(200)
			up, err := net.Dial("tcp", apps[s].addr)
			if err != nil {
				t.Error(err)
				return
			}
			src := &race.StreamSource{Socket: socket{up.(*net.TCPConn)}, Service: "app", Stream: st, Record: s.srv.worker().StreamRecord("in", "client", "app")} // it has no buffer
			s.srv.Answer(socket{nc}, &downstream.StreamAnswer{Opener: s.srv.worker(), Source: src})
		},
		"accepted": func(s *sidecar, nc *net.TCPConn) {
			l := &Listener{srv: s.srv, reserve: func(_, _ net.Addr) func() { panic("boom") }}
			l.Configure(&s.srv.config().Listeners[0])
			l.serve(nc, nc)
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := newApp(t)
			s := newSidecar(t, options{more: "access_log: {path: /log}"}, a.addr)
			apps[s] = a
			client, err := net.Dial("tcp", acceptEach(s.t, func(nc *net.TCPConn) { begin(s, nc) }))
			if err == nil { // the reset may be faster
				defer client.Close()
				_ = client.SetDeadline(time.Now().Add(waitLimit))
				if b, err := io.ReadAll(client); len(b) > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("the client got %q, %v", b, err)
				}
			}
			s.eventually("the stream to end", func() error {
				if open, n := s.srv.Open(), s.reactor.Stats().Panics; open > 0 || n != 1 {
					return fmt.Errorf("%d streams are open, %d panics count", open, n)
				}
				return nil
			})
			s.counts.waitNoStreams()
			if sum, _ := s.counts.totals(); sum.StreamBytesIn != 0 || sum.StreamBytesOut != 0 {
				t.Errorf("%d bytes in and %d out count", sum.StreamBytesIn, sum.StreamBytesOut)
			}
			if name != "accepted" { // that has no stream yet
				if l := s.log.line(0); l.Outcome != "cut" || l.GRPC == "other" {
					t.Errorf("%+v", l)
				}
			}
			if _, err := io.WriteString(s.dial(), "hello"); err != nil {
				t.Fatal(err)
			}
			for got := ""; got != "hello"; { // an earlier connection is that of the stream that panicked
				nc := receive(t, a.conns, "the connection of another stream")
				b := make([]byte, 5)
				n, _ := io.ReadFull(nc, b)
				got = string(b[:n])
				nc.Close()
			}
		})
	}
}

type panickingOpener struct{ race.Opener }

func (panickingOpener) Open(string, race.Picked)      { panic("boom") }
func (panickingOpener) From(shard.Client) race.Opener { panic("boom") }

type panickingSocket struct{ socket }

func (panickingSocket) Write([]byte) (int, error) { panic("boom") }
