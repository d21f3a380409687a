package proxy_test

import (
	"bytes"
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy"
)

const ingress = "10.0.1.1:15006"

// An answer that is a stream waits at the provider under a token, and leaves at
// the consumer as one to be fetched with it.
func TestAnswerOverLinkIsParked(t *testing.T) {
	for _, a := range lastingAnswers {
		t.Run(a.name, func(t *testing.T) {
			m, consumer, provider := newStreamMesh(t, meshOptions{apps: 1, limits: smallMessages})
			m.script(0, a.says)
			m.speak(egress, getStream)
			m.until("a stream", func() bool { return len(consumer.answers) == 1 })
			got, src := consumer.answers[0], consumer.answers[0].Source
			if !bytes.Contains(got.Head, []byte(a.framing)) || len(provider.parked) != 1 {
				t.Fatalf("head %q, %d parked", got.Head, len(provider.parked))
			}
			if src.Socket != nil || src.Addr != ingress || src.Service != "compute" || src.Timeout != 15*time.Second ||
				src.Token != (link.Token{1}) || len(src.Buffer.B) != 0 {
				t.Errorf("to be fetched: %+v", src)
			}
			wire := []byte("3\r\nabc\r\n0\r\n\r\n")
			if a.name == "long" {
				wire = make([]byte, 100_000)
			}
			if n, done, err := src.Body.Decode(wire, src.Buffer); n != len(wire) || !done || err != nil {
				t.Errorf("its body: %d of %d bytes, done %t, %v", n, len(wire), done, err)
			}
			if here := provider.parked[0]; string(here.Buffer.B) != a.here || here.Socket == nil {
				t.Errorf("parked with %d bytes", len(here.Buffer.B))
			}
			if n := m.nodes[1].report().Stats.Left[proxy.LeftParked]; n != 1 {
				t.Errorf("%d departures", n)
			}
			for _, n := range m.nodes {
				if n.proc.Pending() != 1 {
					t.Errorf("%s: %d pending, want the stream", n.host, n.proc.Pending())
				}
			}
			m.apps[0].stop() // the script
			m.apps[0].listen()
			c := m.post(10) // the link goes on
			m.do(c)
			m.finish(c)
			m.ok(c)
			settledStreams(m, consumer, provider)
		})
	}
}

// A consumer that can't fetch, or a provider that can't keep, makes the answer
// too long for a message.
func TestAnswerOverLinkIsRefused(t *testing.T) {
	for name, prepare := range map[string]func(m *mesh, provider *carrier){
		"a consumer without streams": func(m *mesh, _ *carrier) { m.consumer.proc.SetStreams(nil) },
		"too many that wait":         func(_ *mesh, provider *carrier) { provider.full = true },
	} {
		t.Run(name, func(t *testing.T) {
			m, consumer, provider := newStreamMesh(t, meshOptions{apps: 1, limits: smallMessages + "\n" + logAll})
			prepare(m, provider)
			app := m.script(0, lastingAnswers[5].says) // all of which has been read when it leaves
			p := m.speak(egress, getStream)
			m.until("an answer", func() bool { return bytes.Contains(p.heard, []byte("\r\n\r\n")) })
			resp, _, _ := headOf(t, p.heard)
			if code := string(protocol.Find(resp.Headers, "x-remora-error")); resp.Status != 502 || code != "response-too-large" {
				t.Errorf("status %d %s", resp.Status, code)
			}
			m.until("the end of the application's connection", func() bool { return (*app).ended })
			if !errors.Is((*app).why, syscall.ECONNRESET) {
				t.Errorf("the application's connection ended with %v", (*app).why)
			}
			m.w.Reset(p.conn)
			settledStreams(m, consumer, provider)
			for _, n := range m.nodes {
				if l := n.line(); l.Outcome != "failed" || l.Status != 502 || l.Error != "response-too-large" {
					t.Errorf("%s: %+v", n.host, l)
				}
			}
		})
	}
}

// answerOverLink puts a sidecar in the place of the first provider's that answers the
// first request of each link, for a path with /s, with resp.
func (m *mesh) answerOverLink(resp *protocol.Response) {
	m.nodes[1].stop[0]()
	w := link.NewWriter()
	w.Preface(link.Acceptor, link.Settings{})
	w.Open(1, link.Settings{Features: link.FeatureStreams})
	preface := w.Append(nil, 1<<20)
	w.Response(1, resp, protocol.CodecHTTP, nil)
	says := w.Append(nil, 1<<20)
	m.w.Listen(ingress, m.nodes[1].loop, func() proxy.Stream {
		asked := false
		return &peer{says: preface, reply: func(heard []byte) []byte {
			if asked || !bytes.Contains(heard, []byte("/s")) {
				return nil
			}
			asked = true
			return says
		}}
	})
}

// A token that was not asked for, or comes where there is no body, is malformed.
func TestUnexpectedTokenIsMalformed(t *testing.T) {
	for name, c := range map[string]struct {
		method  string
		streams bool
	}{
		"not asked for": {"GET", false},
		"to HEAD":       {"HEAD", true},
	} {
		t.Run(name, func(t *testing.T) {
			m, consumer, provider := newStreamMesh(t, meshOptions{apps: 1})
			if !c.streams {
				m.consumer.proc.SetStreams(nil)
			}
			m.answerOverLink(&protocol.Response{Status: 200, StreamToken: make([]byte, 16), DeclaredLength: -1})
			p := m.speak(egress, c.method+getStream[3:])
			m.until("an answer", func() bool { return bytes.Contains(p.heard, []byte("\r\n\r\n")) })
			if !bytes.Contains(p.heard, []byte("upstream-malformed")) || len(consumer.answers) != 0 {
				t.Errorf("heard %q, %d left", p.heard, len(consumer.answers))
			}
			m.w.Reset(p.conn)
			settledStreams(m, consumer, provider)
		})
	}
}

// Another sidecar's stream leaves the loop with what followed its preface.
func TestStreamsAreAccepted(t *testing.T) {
	for _, st := range []link.Stream{
		{Kind: link.StreamHTTP},
		{Kind: link.StreamOpaque, TimeLeft: 2 * time.Second},
		{Kind: link.StreamAnswer, TimeLeft: time.Hour, Token: link.Token{7}},
	} {
		m, consumer, provider := newStreamMesh(t, meshOptions{apps: 1})
		p := m.speak(ingress, string(link.AppendStream(nil, &st))+"and more")
		m.until("a stream", func() bool { return len(provider.accepted) == 1 })
		m.w.Run(time.Second)
		got := provider.accepted[0]
		want := map[time.Duration]time.Duration{0: 15 * time.Second, 2 * time.Second: 2 * time.Second, time.Hour: 15 * time.Second}
		if got.Stream != st || got.Service != "local" || got.Timeout != want[st.TimeLeft] || got.Leaser != m.nodes[1].proc.Workers()[0] {
			t.Errorf("accepted %+v", got)
		}
		if all := string(got.Rest) + string(drained(t, provider.sockets[0])); all != "and more" {
			t.Errorf("kind %d: %q followed", st.Kind, all)
		}
		r := m.nodes[1].report().Stats
		if p.ended || r.Left[proxy.LeftAccepted] != 1 || r.Connections != 0 {
			t.Errorf("closed %t, stats %+v", p.ended, r)
		}
		settledStreams(m, consumer, provider)
	}
}

// A stream that can't be taken is refused in the words of its kind.
func TestStreamsAreRefused(t *testing.T) {
	drain := func(m *mesh, p *peer) { m.nodes[1].proc.Drain(); m.w.Run(time.Millisecond) }
	fill := func(m *mesh, p *peer) { m.nodes[1].proc.Hold(1 << 30) }
	for _, c := range []struct {
		name    string
		o       meshOptions
		prepare func(m *mesh, p *peer)
		reason  link.Reason
		status  int
		code    string
		answers bool // are refused too
	}{
		{"drain", meshOptions{}, drain, link.Draining, 503, "draining", false},
		{"no memory", meshOptions{}, fill, link.Overload, 503, "overloaded", false},
		{"rate", meshOptions{ingress: ", rate_limit: {rate: 1}"}, func(m *mesh, _ *peer) {
			m.speak(ingress, string(link.AppendStream(nil, &link.Stream{Kind: link.StreamOpaque})))
			m.w.Run(time.Millisecond)
		}, link.RateLimited, 429, "rate-limited", false},
		{"no sockets", meshOptions{noSockets: true}, nil, link.NoService, 501, "not-supported", true},
		{"no streams", meshOptions{}, func(m *mesh, _ *peer) { m.nodes[1].proc.SetStreams(nil) }, link.NoService, 501, "not-supported", true},
	} {
		for _, kind := range []link.StreamKind{link.StreamHTTP, link.StreamOpaque, link.StreamAnswer} {
			m, consumer, provider := newStreamMesh(t, func() meshOptions { o := c.o; o.apps = 1; return o }())
			p := m.speak(ingress, "")
			m.until("a connection", func() bool { return p.conn != nil })
			if c.prepare != nil {
				c.prepare(m, p)
			}
			before := len(provider.accepted)
			m.clients.Do(func() { p.conn.Write(link.AppendStream(nil, &link.Stream{Kind: kind})) })
			if kind == link.StreamAnswer && !c.answers {
				m.until("a stream", func() bool { return len(provider.accepted) == before+1 })
			} else {
				m.wait(p)
				if kind == link.StreamHTTP {
					refusedWith(t, p.heard, c.status, c.code)
				} else if len(p.heard) != 1 || link.Reason(p.heard[0]) != c.reason {
					t.Errorf("%s, kind %d: heard %v", c.name, kind, p.heard)
				}
				if len(provider.accepted) != before {
					t.Errorf("%s, kind %d: accepted", c.name, kind)
				}
			}
			if c.name == "no memory" {
				m.nodes[1].proc.Hold(-1 << 30)
			}
			settledStreams(m, consumer, provider)
		}
	}
}
