package linkconn_test

import (
	"bytes"
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// TestStreamResponseIsParked checks a response whose body is a stream. The body waits at the
// provider under a token, and the consumer's Streams get the token to fetch it.
func TestStreamResponseIsParked(t *testing.T) {
	for _, a := range proxytest.StreamResponses {
		t.Run(a.Name, func(t *testing.T) {
			m, consumer, provider := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, Limits: proxytest.SmallMessages})
			m.Apps[0].RespondWith(a.Says)
			m.DialAndSend(proxytest.Egress, proxytest.StreamRequest)
			m.RunUntil("a stream", func() bool { return len(consumer.Responses) == 1 })
			got, src := consumer.Responses[0], consumer.Responses[0].Source
			if !bytes.Contains(got.Head, []byte(a.Framing)) || len(provider.Parked) != 1 {
				t.Fatalf("head %q, %d parked", got.Head, len(provider.Parked))
			}
			if src.Socket != nil || src.Addr != proxytest.Ingress || src.Service != "compute" || src.Timeout != 15*time.Second ||
				src.Token != (link.Token{1}) || len(src.Buffer.B) != 0 {
				t.Errorf("to be fetched: %+v", src)
			}
			wire := []byte("3\r\nabc\r\n0\r\n\r\n")
			if a.Name == "long" {
				wire = make([]byte, 100_000)
			}
			if n, done, err := src.Body.Decode(wire, src.Buffer); n != len(wire) || !done || err != nil {
				t.Errorf("its body: %d of %d bytes, done %t, %v", n, len(wire), done, err)
			}
			if here := provider.Parked[0]; string(here.Buffer.B) != a.Here || here.Socket == nil {
				t.Errorf("parked with %d bytes", len(here.Buffer.B))
			}
			if n := m.Nodes[1].Report().Stats.Handoffs[stats.HandoffParked]; n != 1 {
				t.Errorf("%d handoffs", n)
			}
			for _, n := range m.Nodes {
				if n.Proc.Pending() != 1 {
					t.Errorf("%s: %d pending, want the stream", n.Host, n.Proc.Pending())
				}
			}
			m.Apps[0].Stop() // the script
			m.Apps[0].Listen()
			c := m.Post(10) // the link still carries requests
			m.Do(c)
			m.OK(c)
			proxytest.CheckStreamsSettled(m, consumer, provider)
		})
	}
}

// TestStreamResponseIsRefused checks that a response is too long for a message when the consumer
// can't fetch its body, or the provider can't keep it.
func TestStreamResponseIsRefused(t *testing.T) {
	for name, prepare := range map[string]func(m *proxytest.Mesh, provider *proxytest.Carrier){
		"a consumer without streams": func(m *proxytest.Mesh, _ *proxytest.Carrier) { m.Consumer.Proc.SetStreams(nil) },
		"too many parked":            func(_ *proxytest.Mesh, provider *proxytest.Carrier) { provider.Full = true },
	} {
		t.Run(name, func(t *testing.T) {
			m, consumer, provider := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, Limits: proxytest.SmallMessages + "\n" + proxytest.LogAll})
			prepare(m, provider)
			app := m.Apps[0].RespondWith(proxytest.StreamResponses[5].Says) // all of which has been read when it leaves
			p := m.DialAndSend(proxytest.Egress, proxytest.StreamRequest)
			m.RunUntil("a response", func() bool { return bytes.Contains(p.Heard, []byte("\r\n\r\n")) })
			if n := m.Nodes[1].Report().Stats.Errors.Of("response-too-large"); n != 1 {
				t.Errorf("counted %d times", n)
			}
			resp, _, _ := proxytest.DecodeHead(t, p.Heard)
			if code := string(protocol.Find(resp.Headers, "x-remora-error")); resp.Status != 502 || code != "response-too-large" {
				t.Errorf("status %d %s", resp.Status, code)
			}
			m.RunUntil("the end of the application's connection", func() bool { return (*app).Ended })
			if !errors.Is((*app).CloseErr, syscall.ECONNRESET) {
				t.Errorf("the application's connection ended with %v", (*app).CloseErr)
			}
			m.W.Faults.Reset(p.Conn)
			proxytest.CheckStreamsSettled(m, consumer, provider)
			for _, n := range m.Nodes {
				if l := n.OnlyAccessLine(); l.Outcome != "failed" || l.Status != 502 || l.Error != "response-too-large" {
					t.Errorf("%s: %+v", n.Host, l)
				}
			}
		})
	}
}

// TestUnexpectedToken checks that a token is malformed in a response without a body, or for a
// consumer that can't fetch.
func TestUnexpectedToken(t *testing.T) {
	for name, c := range map[string]struct {
		method  string
		streams bool
	}{
		"without streams": {"GET", false},
		"to HEAD":         {"HEAD", true},
	} {
		t.Run(name, func(t *testing.T) {
			m, consumer, provider := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1})
			if !c.streams {
				m.Consumer.Proc.SetStreams(nil)
			}
			m.RespondOverLink(&protocol.Response{Status: 200, StreamToken: make([]byte, 16), DeclaredLength: -1})
			p := m.DialAndSend(proxytest.Egress, c.method+proxytest.StreamRequest[3:])
			m.RunUntil("a response", func() bool { return bytes.Contains(p.Heard, []byte("\r\n\r\n")) })
			if !bytes.Contains(p.Heard, []byte("upstream-malformed")) || len(consumer.Responses) != 0 {
				t.Errorf("received %q, %d left", p.Heard, len(consumer.Responses))
			}
			m.W.Faults.Reset(p.Conn)
			proxytest.CheckStreamsSettled(m, consumer, provider)
		})
	}
}

// TestAcceptedStreams checks that another sidecar's stream leaves the loop with the bytes after
// its preface. One with a request has the rules of the listener.
func TestAcceptedStreams(t *testing.T) {
	for _, st := range []link.Stream{
		{Kind: link.StreamHTTP},
		{Kind: link.StreamOpaque, TimeLeft: 2 * time.Second},
		{Kind: link.StreamAnswer, TimeLeft: time.Hour, Token: link.Token{7}},
	} {
		m, consumer, provider := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, Provider: "opaque: true", Limits: proxytest.LogAll,
			Ingress: "allow: {enforce: false, rules: [{method: [GET]}]}"})
		p := m.DialAndSend(proxytest.Ingress, string(link.AppendStream(nil, &st))+"and more")
		m.RunUntil("a stream", func() bool { return len(provider.Accepted) == 1 })
		m.W.Run(time.Second)
		got := provider.Accepted[0]
		want := map[time.Duration]time.Duration{0: 15 * time.Second, 2 * time.Second: 2 * time.Second, time.Hour: 15 * time.Second}
		if got.Stream != st || got.Service != "local" || got.Timeout != want[st.TimeLeft] || got.Opener == nil {
			t.Errorf("accepted %+v", got)
		}
		if got.Rules.Given() != (st.Kind == link.StreamHTTP) { // only that has a head to look at
			t.Errorf("kind %d: rules %+v", st.Kind, got.Rules)
		}
		if hasRecord := got.Record != nil; hasRecord != (st.Kind != link.StreamAnswer) { // the request of an answer has one
			t.Errorf("kind %d: it has a record: %t", st.Kind, hasRecord)
		}
		if all := string(got.Rest) + string(proxytest.ReadArrived(t, provider.Sockets[0])); all != "and more" {
			t.Errorf("kind %d: %q followed", st.Kind, all)
		}
		r := m.Nodes[1].Report().Stats
		if p.Ended || r.Handoffs[stats.HandoffAccepted] != 1 || r.Connections != 0 {
			t.Errorf("closed %t, stats %+v", p.Ended, r)
		}
		proxytest.CheckStreamsSettled(m, consumer, provider)
	}
}

// TestKindsOfStreams checks that a service takes streams of requests, and opaque ones only if its settings say so.
func TestKindsOfStreams(t *testing.T) {
	for provider, kinds := range map[string]map[link.StreamKind]bool{
		"":             {link.StreamHTTP: true, link.StreamOpaque: false},
		"opaque: true": {link.StreamHTTP: true, link.StreamOpaque: true},
	} {
		for kind, takes := range kinds {
			m, consumer, carrier := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, Provider: provider})
			m.DialAndSend(proxytest.Ingress, string(link.AppendStream(nil, &link.Stream{Kind: kind})))
			m.W.Run(time.Second)
			if taken := len(carrier.Accepted) == 1; taken != takes {
				t.Errorf("%q, kind %d: taken %t", provider, kind, taken)
			}
			proxytest.CheckStreamsSettled(m, consumer, carrier)
		}
	}
}

// TestRefusedStreams checks that a refusal of a stream is encoded for its kind.
func TestRefusedStreams(t *testing.T) {
	drain := func(m *proxytest.Mesh, p *proxytest.Peer) { m.Nodes[1].Proc.Drain(); m.W.Run(time.Millisecond) }
	fill := func(m *proxytest.Mesh, p *proxytest.Peer) { m.Nodes[1].Proc.Charge(1 << 30) }
	for _, c := range []struct {
		name    string
		o       proxytest.MeshOptions
		prepare func(m *proxytest.Mesh, p *proxytest.Peer)
		reason  link.Reason
		status  int
		code    string
		answers bool // streams that fetch a response body are refused too
	}{
		{"drain", proxytest.MeshOptions{}, drain, link.Draining, 503, "draining", false},
		{"no memory", proxytest.MeshOptions{}, fill, link.Overload, 503, "overloaded", false},
		{"rate", proxytest.MeshOptions{Ingress: "rate_limit: {rate: 1}"}, func(m *proxytest.Mesh, _ *proxytest.Peer) {
			m.DialAndSend(proxytest.Ingress, string(link.AppendStream(nil, &link.Stream{Kind: link.StreamOpaque})))
			m.W.Run(time.Millisecond)
		}, link.RateLimited, 429, "rate-limited", false},
		{"no sockets", proxytest.MeshOptions{NoSockets: true}, nil, link.NoService, 501, "not-supported", true},
		{"no descriptor", proxytest.MeshOptions{}, func(m *proxytest.Mesh, _ *proxytest.Peer) {
			m.W.Options.OnDetach = func() error { return errors.New("too many open files") }
		}, link.Overload, 503, "overloaded", true},
		{"no streams", proxytest.MeshOptions{}, func(m *proxytest.Mesh, _ *proxytest.Peer) { m.Nodes[1].Proc.SetStreams(nil) }, link.NoService, 501, "not-supported", true},
	} {
		for _, kind := range []link.StreamKind{link.StreamHTTP, link.StreamOpaque, link.StreamAnswer} {
			m, consumer, provider := proxytest.NewStreamMesh(t, func() proxytest.MeshOptions { o := c.o; o.Apps, o.Provider = 1, "opaque: true"; return o }())
			p := m.DialAndSend(proxytest.Ingress, "")
			m.RunUntil("a connection", func() bool { return p.Conn != nil })
			if c.prepare != nil {
				c.prepare(m, p)
			}
			before := len(provider.Accepted)
			m.Clients.Do(func() { p.Conn.Write(link.AppendStream(nil, &link.Stream{Kind: kind})) })
			if kind == link.StreamAnswer && !c.answers {
				m.RunUntil("a stream", func() bool { return len(provider.Accepted) == before+1 })
			} else {
				m.RunUntilClosed(p)
				if kind == link.StreamHTTP {
					proxytest.CheckRefusal(t, p.Heard, c.status, c.code)
				} else if len(p.Heard) != 1 || link.Reason(p.Heard[0]) != c.reason {
					t.Errorf("%s, kind %d: received %v", c.name, kind, p.Heard)
				}
				if len(provider.Accepted) != before {
					t.Errorf("%s, kind %d: accepted", c.name, kind)
				}
				if n := m.Nodes[1].Report().Stats.Errors.Of(c.code); n != 1 {
					t.Errorf("%s, kind %d: %s is counted %d times", c.name, kind, c.code, n)
				}
			}
			if c.name == "no memory" {
				m.Nodes[1].Proc.Charge(-1 << 30)
			}
			proxytest.CheckStreamsSettled(m, consumer, provider)
		}
	}
}
