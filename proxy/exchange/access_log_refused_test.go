package exchange_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// TestAccessLogUnsendable: a response that can't be passed on is logged and counted as
// the failure that the client receives instead.
func TestAccessLogUnsendable(t *testing.T) {
	control := []protocol.Header{{Name: []byte("x"), Value: []byte("a\x01b")}}
	for name, resp := range map[string]*protocol.Response{
		"message": {Status: 200, Headers: control, DeclaredLength: -1},
		"stream":  {Status: 200, Headers: control, DeclaredLength: -1, StreamToken: make([]byte, 16)},
		"bad":     {Status: 500, Headers: control, DeclaredLength: -1},
	} {
		t.Run(name, func(t *testing.T) {
			m, consumer, provider := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, Limits: proxytest.LogAll})
			m.RespondOverLink(resp)
			c := m.Complete(m.Get("/s"))
			if c.Status != 502 || c.Code != "upstream-malformed" {
				t.Errorf("status %d %s", c.Status, c.Code)
			}
			if l := m.Consumer.OnlyAccessLine(); l.Status != c.Status || l.Error != c.Code || l.Outcome != "failed" || l.BytesOut != 0 {
				t.Errorf("%+v", l)
			}
			if n := len(m.Nodes[1].AccessLines()); n != 0 {
				t.Errorf("%d lines of the provider, which received no request", n)
			}
			if s, want := m.Consumer.Stats("compute"), [stats.Outcomes]uint64{stats.OutcomeFailed: 1}; s.Outcomes != want || s.BytesOut != 0 {
				t.Errorf("outcomes %v, %d bytes of responses", s.Outcomes, s.BytesOut)
			}
			proxytest.CheckStreamsSettled(m, consumer, provider)
		})
	}
}

// TestAccessLogRejected: a request that a link refuses before it is complete has a line.
func TestAccessLogRejected(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Limits: proxytest.SmallMessages + "\n" + proxytest.LogAll})
	long := *proxytest.LinkRequest
	long.Body = make([]byte, 65<<10)
	p := &proxytest.Peer{Says: proxytest.LinkFrames(func(w *link.Writer) { w.Request(1, &long, time.Minute, nil) })}
	m.DialIngress(p)
	m.RunUntil("the refusal", func() bool { return bytes.Contains(p.Heard, []byte{7, 1, 1, byte(link.TooLarge)}) })
	m.W.Faults.Reset(p.Conn)
	m.Settled()
	if l := m.Nodes[1].OnlyAccessLine(); l.Listener != "ingress" || l.Outcome != "failed" || l.Status != 413 || l.Error != "message-too-large" {
		t.Errorf("%+v", l)
	}
}
