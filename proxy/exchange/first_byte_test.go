package exchange_test

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http2"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/hedge"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// streamForm is one way in which a response becomes a stream.
type streamForm struct {
	name   string
	speaks string // of the applications
	head   string // of the response, for HTTP/1.1
	part   string // the first part of its body
	mime   string // for HTTP/2
	length int64
	ask    string // the request
	after  time.Duration
}

var streamForms = []streamForm{
	{name: "events", speaks: "http", ask: proxytest.StreamRequest, part: "5\r\nfirst\r\n",
		head: "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"},
	{name: "download", speaks: "http", ask: proxytest.StreamRequest, part: "first",
		head: "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"},
	{name: "events over HTTP2", speaks: "http2", ask: proxytest.StreamRequest, mime: "text/event-stream", length: -1},
	{name: "download over HTTP2", speaks: "http2", ask: proxytest.StreamRequest, length: proxytest.LongBodySize},
	{name: "gRPC", speaks: "http2", mime: "application/grpc", length: -1, after: 5 * time.Millisecond,
		ask: "POST /s HTTP/1.1\r\nHost: compute\r\nContent-Type: application/grpc\r\nContent-Length: 5\r\n\r\nasked"},
}

// pace is when an application sends the head of a response and the first part of its body, since the request came.
// never means not at all.
type pace struct{ head, body time.Duration }

const never = time.Hour

// streamer is the applications of a mesh. Each sends a stream at the pace of the attempt that it got.
type streamer struct {
	m     *proxytest.Mesh
	form  streamForm
	paces []pace   // of the attempts to come
	seen  []string // addresses of the applications that got an attempt
	ended []bool   // whether the application knows that its attempt is over
	conns []loop.Conn
}

// stream replaces the applications of a mesh.
func stream(m *proxytest.Mesh, form streamForm) *streamer {
	s := &streamer{m: m, form: form}
	for _, a := range m.Apps {
		a.Stop()
		a.Stop = m.W.Net.Listen(a.Addr, a.Loop, func() loop.Receiver {
			if form.speaks == "http2" {
				return s.http2(a)
			}
			return s.http1(a)
		})
	}
	return s
}

// attempt notes an attempt, and has the application send both parts of its response.
func (s *streamer) attempt(a *proxytest.App, c loop.Conn, head, body func()) (number int) {
	number = len(s.seen)
	p := s.paces[number]
	s.seen, s.ended, s.conns = append(s.seen, a.Addr), append(s.ended, false), append(s.conns, c)
	for at, send := range map[time.Duration]func(){p.head: head, max(p.body, p.head+time.Microsecond): body} {
		if at < never {
			a.Loop.After(at, &loop.Timer{Fire: func() {
				if !s.ended[number] {
					send()
				}
			}})
		}
	}
	return number
}

type http1Streamer struct {
	*proxytest.Peer
	onEnd func()
}

func (p http1Streamer) OnClose(err error) {
	p.Peer.OnClose(err)
	p.onEnd()
}

func (s *streamer) http1(a *proxytest.App) loop.Receiver {
	p := &proxytest.Peer{}
	var mine []int
	p.Reply = func(heard []byte) []byte {
		if bytes.HasSuffix(heard, []byte("\r\n\r\n")) {
			mine = append(mine, s.attempt(a, p.Conn,
				func() { p.Conn.Write([]byte(s.form.head)) }, func() { p.Conn.Write([]byte(s.form.part)) }))
		}
		return nil
	}
	return http1Streamer{p, func() {
		for _, n := range mine {
			s.ended[n] = true
		}
	}}
}

type http2Streamer struct {
	*proxytest.HTTP2Conn
	mine map[*http2.Stream]int
	s    *streamer
}

func (p http2Streamer) OnData(b []byte) {
	resets := len(p.Resets)
	p.HTTP2Conn.OnData(b)
	if len(p.Resets) > resets {
		p.end()
	}
}

func (p http2Streamer) OnClose(err error) {
	p.HTTP2Conn.OnClose(err)
	p.end()
}

func (p http2Streamer) end() {
	for _, n := range p.mine {
		p.s.ended[n] = true
	}
	clear(p.mine)
}

func (s *streamer) http2(a *proxytest.App) loop.Receiver {
	p := http2Streamer{mine: map[*http2.Stream]int{}, s: s}
	p.HTTP2Conn = proxytest.NewHTTP2Conn(0, func(c *proxytest.HTTP2Conn, st *http2.Stream) {
		p.mine[st] = s.attempt(a, c.Conn, func() {
			res := &protocol.Response{Status: 200, DeclaredLength: s.form.length}
			if s.form.mime != "" {
				res.Headers = []protocol.Header{{Name: []byte("content-type"), Value: []byte(s.form.mime)}}
			}
			c.H2.ResponseHead(st, res)
			c.Flush()
		}, func() {
			c.H2.Send(st, []byte("first"))
			c.Flush()
		})
	})
	return p
}

// firstByteMesh is a mesh whose consumer hedges after 20 ms, and holds heads for 40 ms once it has learned that the
// first bytes follow them.
func firstByteMesh(t *testing.T, form streamForm, oneHop bool, service string) (*proxytest.Mesh, *streamer, *proxytest.Carrier, *proxytest.Carrier) {
	t.Helper()
	m, consumer, provider := proxytest.NewStreamMesh(t, proxytest.MeshOptions{
		Apps: 3, OneHop: oneHop, Speaks: form.speaks, Limits: proxytest.SmallMessages, Match: "match: {method: [GET, POST]}",
		Service: cmp.Or(service, "idempotent: true, hedge: {mode: on, delay: 20ms, budget: 1}"),
	})
	return m, stream(m, form), consumer, provider
}

// request has the mesh learn from a first stream, whose head is not held, and then sends a request with attempts of
// these paces. It returns when the request was sent, and the client's connection.
func (s *streamer) request(c *proxytest.Carrier, paces ...pace) (began time.Duration, client *proxytest.Peer) {
	s.m.T.Helper()
	s.paces = append([]pace{{time.Millisecond, 2 * time.Millisecond}}, paces...)
	s.m.DialAndSend(proxytest.Egress, s.form.ask)
	s.m.RunUntil("a stream", func() bool { return len(c.Responses) == 1 })
	if at := s.m.W.Now(); at > 20*time.Millisecond {
		s.m.T.Errorf("the first stream came after %v", at)
	}
	if learn := c.Responses[0].Source.Stream.OnFirstByte(); learn != nil {
		learn()
	}
	s.m.W.Run(500 * time.Millisecond)
	began = s.m.W.Now()
	return began, s.m.DialAndSend(proxytest.Egress, s.form.ask)
}

// effect returns what the consumer knows of its hedges.
func (s *streamer) effect() *hedge.Effect { return s.m.Consumer.Report().Services[0].Routes[0].Effect }

// sends reports whether a stream comes from the application of attempt i.
func (s *streamer) sends(i int, a *downstream.StreamAnswer) bool {
	host, _, _ := strings.Cut(a.Source.Addr, ":")
	return i < len(s.seen) && strings.HasPrefix(s.seen[i], host+":")
}

func eachStream(t *testing.T, do func(t *testing.T, form streamForm, oneHop bool)) {
	for _, form := range streamForms {
		for hops := range 2 {
			t.Run(fmt.Sprintf("%s, hops %d", form.name, hops+1), func(t *testing.T) { do(t, form, hops == 0) })
		}
	}
}

// TestFirstByteWins: a stream is hedged until the first byte of the body of either attempt. The other attempt is reset.
// Without a first byte the head is passed on after another delay.
func TestFirstByteWins(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name           string
		primary, hedge pace
		hedged, won    bool
		after          time.Duration
	}{
		{"primary before the delay", pace{1 * ms, 10 * ms}, pace{}, false, false, 10 * ms},
		{"primary with its head late", pace{10 * ms, 10 * ms}, pace{}, false, false, 10 * ms},
		{"primary after the delay", pace{1 * ms, 27 * ms}, pace{1 * ms, never}, true, false, 27 * ms},
		{"primary after the delay, head late", pace{27 * ms, 27 * ms}, pace{1 * ms, never}, true, false, 27 * ms},
		{"hedge", pace{1 * ms, never}, pace{1 * ms, 7 * ms}, true, true, 27 * ms},
		{"hedge, primary without a head", pace{never, never}, pace{1 * ms, 7 * ms}, true, true, 27 * ms},
		{"hedge, then the primary's head", pace{29 * ms, never}, pace{1 * ms, 7 * ms}, true, true, 27 * ms},
		{"hedge with its head late", pace{1 * ms, never}, pace{7 * ms, 7 * ms}, true, true, 27 * ms},
		{"neither", pace{1 * ms, never}, pace{1 * ms, never}, true, false, 40 * ms},
		{"neither, hedge without a head", pace{1 * ms, never}, pace{never, never}, true, false, 40 * ms},
		{"neither, primary without a head", pace{never, never}, pace{1 * ms, never}, true, true, 60 * ms},
		{"neither, head after the hold", pace{50 * ms, never}, pace{never, never}, true, false, 50 * ms},
	} {
		t.Run(c.name, func(t *testing.T) {
			eachStream(t, func(t *testing.T, form streamForm, oneHop bool) {
				m, s, consumer, provider := firstByteMesh(t, form, oneHop, "")
				began, _ := s.request(consumer, c.primary, c.hedge)
				m.RunUntil("the second stream", func() bool { return len(consumer.Responses) == 2 })
				least, most := c.after, c.after+3*ms
				if c.primary.head == c.primary.body && !c.won || c.hedge.head == c.hedge.body && c.won || c.after == 50*ms {
					most += form.after // the head is not held: it comes with a part of the body, or too late
				}
				if took := m.W.Now() - began; took < least || took > most {
					t.Errorf("the head was passed on after %v, want %v to %v", took, least, most)
				}
				m.W.Run(5 * ms)
				winner, loser := 1, 2
				if c.won {
					winner, loser = 2, 1
				}
				if !s.sends(winner, consumer.Responses[1]) {
					t.Errorf("the stream comes from %s", consumer.Responses[1].Source.Addr)
				}
				if s.ended[winner] {
					t.Error("the winner was ended")
				}
				hedges := 0
				if c.hedged {
					hedges = 1
				}
				if len(s.seen) != 2+hedges {
					t.Fatalf("%d attempts were seen", len(s.seen))
				}
				frozen := loser < len(s.seen) && s.paces[loser].head == never
				if c.hedged && !s.ended[loser] && !(form.speaks == "http" && frozen) {
					t.Error("the loser was not reset")
				}
				st := m.Consumer.Stats("compute")
				if won := st.HedgesWon == 1; st.Hedges != uint64(hedges) || won != c.won || st.Streams != 2 || st.StreamsOpen != 2 {
					t.Errorf("%d hedges, %d won; %d streams, %d open", st.Hedges, st.HedgesWon, st.Streams, st.StreamsOpen)
				}
				proxytest.CheckStreamsSettled(m, consumer, provider)
			})
		})
	}
}

// TestHeldHeadEnds: a client leaves while heads are held, or what sends a head fails. No attempt, no stream and no
// memory is left, and a client that stays gets one stream.
func TestHeldHeadEnds(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name           string
		primary, hedge pace
		at             time.Duration                                                // when do is done
		do             func(m *proxytest.Mesh, s *streamer, client *proxytest.Peer) // nil: the other applications are down from the start
		from           int                                                          // attempt that the stream comes from; 0: there is no stream
		after          time.Duration
	}{
		{"client leaves before the hedge", pace{1 * ms, never}, pace{}, 10 * ms, leave, 0, 0},
		{"client leaves, two heads", pace{1 * ms, never}, pace{1 * ms, never}, 30 * ms, leave, 0, 0},
		{"client leaves, head of the primary", pace{1 * ms, never}, pace{never, never}, 30 * ms, leave, 0, 0},
		{"client leaves, head of the hedge", pace{never, never}, pace{1 * ms, never}, 30 * ms, leave, 0, 0},
		{"primary fails before the hedge", pace{1 * ms, never}, pace{1 * ms, 8 * ms}, 5 * ms, cut(1), 2, 13 * ms},
		{"primary fails, two heads", pace{1 * ms, never}, pace{1 * ms, 17 * ms}, 30 * ms, cut(1), 2, 37 * ms},
		{"hedge fails, two heads", pace{1 * ms, 35 * ms}, pace{1 * ms, never}, 30 * ms, cut(2), 1, 35 * ms},
		{"hedge fails, no first byte", pace{1 * ms, never}, pace{1 * ms, never}, 30 * ms, cut(2), 1, 40 * ms},
		{"hedge is refused", pace{1 * ms, 35 * ms}, pace{}, 0, nil, 1, 35 * ms},
		{"hedge is refused, no first byte", pace{1 * ms, never}, pace{}, 0, nil, 1, 40 * ms},
	} {
		t.Run(c.name, func(t *testing.T) {
			eachStream(t, func(t *testing.T, form streamForm, oneHop bool) {
				m, s, consumer, provider := firstByteMesh(t, form, oneHop, "")
				began, client := s.request(consumer, c.primary, c.hedge)
				if c.do == nil {
					m.RunUntil("the primary", func() bool { return len(s.seen) == 2 })
					for _, a := range m.Apps {
						if a.Addr != s.seen[1] {
							a.Stop()
						}
					}
				} else {
					m.W.Run(c.at)
					c.do(m, s, client)
				}
				if c.from == 0 {
					m.W.Run(100 * ms)
					if len(consumer.Responses) != 1 {
						t.Error("a stream was passed on, though its client had left")
					}
				} else {
					m.RunUntil("a stream", func() bool { return len(consumer.Responses) == 2 })
					if took := m.W.Now() - began; took < c.after || took > c.after+4*ms {
						t.Errorf("the head was passed on after %v, want about %v", took, c.after)
					}
					if !s.sends(c.from, consumer.Responses[1]) {
						t.Errorf("the stream comes from %s", consumer.Responses[1].Source.Addr)
					}
					m.W.Run(100 * ms)
				}
				if len(client.Heard) > 0 {
					t.Errorf("the client got %q", client.Heard)
				}
				proxytest.CheckStreamsSettled(m, consumer, provider)
				m.W.Run(5 * time.Second) // the deadline of attempts that linger
				for i := range s.seen {
					if i != c.from && !s.ended[i] && i > 0 {
						t.Errorf("attempt %d was not ended", i)
					}
				}
			})
		})
	}
}

func leave(m *proxytest.Mesh, _ *streamer, client *proxytest.Peer) { m.W.Faults.Reset(client.Conn) }

// cut resets the connection that attempt i came to the application by or, if that has a sidecar, the link.
func cut(i int) func(m *proxytest.Mesh, s *streamer, _ *proxytest.Peer) {
	return func(m *proxytest.Mesh, s *streamer, _ *proxytest.Peer) {
		if m.OneHop {
			m.W.Faults.Reset(s.conns[i])
			return
		}
		host, _, _ := strings.Cut(s.seen[i], ":")
		m.W.Faults.ResetAll(m.Consumer.Host, host)
	}
}

// TestHeadIsNotHeld: a head is passed on at once where no first byte has followed yet, or soon enough, and where the
// request can't be hedged.
func TestHeadIsNotHeld(t *testing.T) {
	const ms = time.Millisecond
	prompt := pace{1 * ms, 2 * ms}
	for _, c := range []struct {
		name  string
		first pace
		ask   func(s string) string
		apps  int
		mesh  string // the service; empty: that of firstByteMesh
	}{
		{name: "the first stream is silent", first: pace{1 * ms, never}},
		{name: "the first byte is late", first: pace{1 * ms, 60 * ms}},
		{name: "the caller wants no hedges", first: prompt, ask: func(s string) string {
			return strings.Replace(s, "\r\n", "\r\nx-remora-hedge: off\r\n", 1)
		}},
		{name: "a hedge itself", first: prompt, ask: func(s string) string {
			return strings.Replace(s, "\r\n", "\r\nx-remora-attempt: 1\r\n", 1)
		}},
		{name: "batch", first: prompt, ask: func(s string) string {
			return strings.Replace(s, "\r\n", "\r\nx-remora-priority: batch\r\n", 1)
		}},
		{name: "one endpoint", first: prompt, apps: 1},
		{name: "not idempotent", first: prompt, mesh: "hedge: {mode: on, delay: 20ms, budget: 1}", ask: func(s string) string {
			return strings.Replace(s, "GET", "POST", 1)
		}},
		{name: "shadow", first: prompt, mesh: "idempotent: true, hedge: {mode: shadow}"},
	} {
		t.Run(c.name, func(t *testing.T) {
			eachStream(t, func(t *testing.T, form streamForm, oneHop bool) {
				m, s, consumer, provider := firstByteMesh(t, form, oneHop, c.mesh)
				s.paces = []pace{c.first, {1 * ms, never}}
				ask := form.ask
				for n := 1; n <= 2; n++ {
					began := m.W.Now()
					m.DialAndSend(proxytest.Egress, ask)
					m.RunUntil("a stream", func() bool { return len(consumer.Responses) == n })
					if took := m.W.Now() - began; took > 12*ms {
						t.Errorf("head %d was passed on after %v", n, took)
					}
					m.W.Run(max(0, c.first.body-m.W.Now()+began) % never)
					if learn := consumer.Responses[n-1].Source.Stream.OnFirstByte(); learn != nil && s.paces[n-1].body < never {
						learn()
					}
					m.W.Run(ms)
					if c.apps > 0 {
						m.Consumer.Update("compute", m.Endpoint(0))
					}
					if c.ask != nil {
						ask = c.ask(ask)
					}
				}
				proxytest.CheckStreamsSettled(m, consumer, provider)
			})
		})
	}
}

// TestHeadsHeldInVain: once a head was held in vain, the heads of the route are not held until a first byte has come in
// time. A head is held for half of the time that the attempt has, at most.
func TestHeadsHeldInVain(t *testing.T) {
	const ms = time.Millisecond
	silent := pace{1 * ms, never}
	for _, c := range []struct {
		name, service string
		held          time.Duration
	}{
		{"two delays", "", 40 * ms},
		{"half of the deadline", "idempotent: true, timeout: 60ms, hedge: {mode: on, delay: 20ms, budget: 1}", 30 * ms},
		{"half of a try", "idempotent: true, retry: {per_try_timeout: 50ms}, hedge: {mode: on, delay: 20ms, budget: 1}", 25 * ms},
		{"three delays", "idempotent: true, hedge: {mode: on, delay: 20ms, budget: 1, max: 2}", 60 * ms},
	} {
		t.Run(c.name, func(t *testing.T) {
			eachStream(t, func(t *testing.T, form streamForm, oneHop bool) {
				m, s, consumer, provider := firstByteMesh(t, form, oneHop, c.service)
				began, _ := s.request(consumer, silent, silent, silent, silent)
				m.RunUntil("a stream", func() bool { return len(consumer.Responses) == 2 })
				if took := m.W.Now() - began; took < c.held-ms || took > c.held+3*ms {
					t.Errorf("the head was held for %v, want %v", took, c.held)
				}
				if _, known := s.effect().Without.Quantile(1); known {
					t.Error("the latency of a silent stream counts as known")
				}
				s.paces = append(s.paces[:len(s.seen)], silent)
				began = m.W.Now()
				m.DialAndSend(proxytest.Egress, form.ask)
				m.RunUntil("a stream", func() bool { return len(consumer.Responses) == 3 })
				if took := m.W.Now() - began; took > 12*ms {
					t.Errorf("another head was held for %v", took)
				}
				proxytest.CheckStreamsSettled(m, consumer, provider)
			})
		})
	}
}

// TestLateHeadWithBody: a head that comes after the time for which it would have been held, with the first byte, was not
// held in vain. The next one is held.
func TestLateHeadWithBody(t *testing.T) {
	const ms = time.Millisecond
	for _, form := range streamForms {
		t.Run(form.name, func(t *testing.T) {
			m, s, consumer, provider := firstByteMesh(t, form, true, "")
			s.request(consumer, pace{50 * ms, 50 * ms}, pace{never, never})
			m.RunUntil("a stream", func() bool { return len(consumer.Responses) == 2 })
			s.paces = append(s.paces[:len(s.seen)], pace{1 * ms, never}, pace{1 * ms, never})
			began := m.W.Now()
			m.DialAndSend(proxytest.Egress, form.ask)
			m.RunUntil("a stream", func() bool { return len(consumer.Responses) == 3 })
			if took := m.W.Now() - began; took < 40*ms {
				t.Errorf("the next head was passed on after %v, want 40ms", took)
			}
			proxytest.CheckStreamsSettled(m, consumer, provider)
		})
	}
}

// TestPausingBodyIsHeld: a response of unknown length without a byte of its body is held, too, once it counts as a
// stream. It is passed on with the first byte.
func TestPausingBodyIsHeld(t *testing.T) {
	const ms = time.Millisecond
	form := streamForms[0]
	form.head = strings.Replace(form.head, "text/event-stream", "text/plain", 1)
	m, s, consumer, provider := firstByteMesh(t, form, true, "idempotent: true, hedge: {mode: on, delay: 90ms, budget: 1}")
	s.paces = []pace{{1 * ms, 2 * ms}, {1 * ms, never}} // the body begins at once, but may be whole until 100 ms
	m.DialAndSend(proxytest.Egress, form.ask)
	m.RunUntil("a stream", func() bool { return len(consumer.Responses) == 1 })
	consumer.Responses[0].Source.Stream.OnFirstByte()()
	m.W.Run(ms)
	for _, body := range []time.Duration{130 * ms, never} {
		s.paces = append(s.paces[:len(s.seen)], pace{1 * ms, body}, pace{1 * ms, never})
		primary, began, n := len(s.seen), m.W.Now(), len(consumer.Responses)
		m.DialAndSend(proxytest.Egress, form.ask)
		m.RunUntil("a stream", func() bool { return len(consumer.Responses) == n+1 })
		want := min(body, 180*ms) // two delays
		if took := m.W.Now() - began; took < want || took > want+3*ms || !s.sends(primary, consumer.Responses[n]) {
			t.Errorf("the stream came after %v from %s, want %v from the primary", took, consumer.Responses[n].Source.Addr, want)
		}
		m.W.Run(200 * ms)
	}
	proxytest.CheckStreamsSettled(m, consumer, provider)
}

// TestHedgesOfStreamsAreNotJudged: an overtaken attempt of a stream is reset, so how long it would have taken is not
// known. So the others are not judged either, or hedges would seem to save nothing.
func TestHedgesOfStreamsAreNotJudged(t *testing.T) {
	const ms = time.Millisecond
	m, s, consumer, provider := firstByteMesh(t, streamForms[0], true, "")
	s.request(consumer, pace{1 * ms, 30 * ms}, pace{1 * ms, never})
	m.W.Run(50 * ms)
	for range 200 { // each hedge loses
		s.paces = append(s.paces[:len(s.seen)], pace{1 * ms, 30 * ms}, pace{1 * ms, never})
		n := len(consumer.Responses)
		m.DialAndSend(proxytest.Egress, streamForms[0].ask)
		m.RunUntil("a stream", func() bool { return len(consumer.Responses) == n+1 })
		consumer.Responses[n].Source.Close()
		m.W.Run(50 * ms)
	}
	consumer.Responses = consumer.Responses[:2] // the others are closed
	if hedges, oneIn := m.Consumer.Stats("compute").Hedges, s.effect().OneIn; hedges < 200 || oneIn != 1 {
		t.Errorf("%d hedges; one in %d decisions may hedge", hedges, oneIn)
	}
	proxytest.CheckStreamsSettled(m, consumer, provider)
}
