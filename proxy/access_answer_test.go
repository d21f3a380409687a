package proxy_test

import (
	"testing"

	"github.com/remora-proxy/remora/protocol"
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
