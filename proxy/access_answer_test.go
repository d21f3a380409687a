package proxy_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy"
)

// TestAccessLogUnsendable: an answer that can't be sent on is logged, and counted, as
// the failure that the caller gets in its place.
func TestAccessLogUnsendable(t *testing.T) {
	control := []protocol.Header{{Name: []byte("x"), Value: []byte("a\x01b")}}
	for name, resp := range map[string]*protocol.Response{
		"message": {Status: 200, Headers: control, DeclaredLength: -1},
		"stream":  {Status: 200, Headers: control, DeclaredLength: -1, StreamToken: make([]byte, 16)},
		"bad":     {Status: 500, Headers: control, DeclaredLength: -1},
	} {
		t.Run(name, func(t *testing.T) {
			m, consumer, provider := newStreamMesh(t, meshOptions{apps: 1, limits: logAll})
			m.answerOverLink(resp)
			c := m.get("/s")
			m.do(c)
			m.finish(c)
			if c.status != 502 || c.code != "upstream-malformed" {
				t.Errorf("answered %d %s", c.status, c.code)
			}
			if l := m.consumer.line(); l.Status != c.status || l.Error != c.code || l.Outcome != "failed" || l.BytesOut != 0 {
				t.Errorf("%+v", l)
			}
			if n := len(m.nodes[1].lines()); n != 0 {
				t.Errorf("%d lines of the provider that was not asked", n)
			}
			if s, want := m.consumer.stats("compute"), [proxy.Outcomes]uint64{proxy.OutcomeFailed: 1}; s.Outcomes != want || s.BytesOut != 0 {
				t.Errorf("outcomes %v, %d bytes of answers", s.Outcomes, s.BytesOut)
			}
			settledStreams(m, consumer, provider)
		})
	}
}

// TestAccessLogRejected: a request that a link refuses before it is one has a line.
func TestAccessLogRejected(t *testing.T) {
	m := newMesh(t, meshOptions{apps: 1, limits: smallMessages + "\n" + logAll})
	long := *get
	long.Body = make([]byte, 65<<10)
	p := &peer{says: frames(func(w *link.Writer) { w.Request(1, &long, time.Minute, nil) })}
	m.visit(p)
	m.until("the refusal", func() bool { return bytes.Contains(p.heard, []byte{7, 1, 1, byte(link.TooLarge)}) })
	m.w.Reset(p.conn)
	m.settled()
	if l := m.nodes[1].line(); l.Listener != "ingress" || l.Outcome != "failed" || l.Status != 413 || l.Error != "message-too-large" {
		t.Errorf("%+v", l)
	}
}
