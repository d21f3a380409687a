package shard_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// TestDialFailuresAreLogged: the log says why an endpoint accepts no connection, once in
// ten seconds however many requests fail.
func TestDialFailuresAreLogged(t *testing.T) {
	silent := func([]byte) []byte { return nil }
	empty := func([]byte) []byte { return []byte{} }
	http := func([]byte) []byte { return []byte("HTTP/1.1 400 Bad Request\r\n\r\n") }
	for _, test := range []struct {
		name string
		peer *proxytest.Peer // at the endpoint; nil means that nothing listens
		line string
	}{
		{"nobody", nil, `msg="endpoint not connected" service=compute endpoint=10.0.1.1:15006 error="connection refused"`},
		{"silent", &proxytest.Peer{Reply: silent}, `msg="endpoint not connected" service=compute endpoint=10.0.1.1:15006 ` +
			`error="proxy: the peer did not begin to speak the link protocol within connect_timeout"`},
		{"closes", &proxytest.Peer{Reply: empty, ClosesAfterReply: true}, `msg="endpoint not connected" service=compute endpoint=10.0.1.1:15006 ` +
			`error="proxy: the peer closed before it spoke the link protocol; it may want TLS, or speak another protocol"`},
		{"resets", &proxytest.Peer{}, `msg="endpoint not connected" service=compute endpoint=10.0.1.1:15006 ` +
			`error="proxy: the peer closed before it spoke the link protocol; it may want TLS, or speak another protocol: connection reset by peer"`},
		{"http", &proxytest.Peer{Reply: http}, `msg="link closed: malformed input" peer=10.0.1.1:15006 ` +
			`error="link: the peer does not speak the link protocol (link_magic)"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1})
			if test.peer == nil {
				m.Nodes[1].Stop[0]()
			} else {
				m.ReplaceProvider(test.peer)
			}
			if test.name == "resets" {
				test.peer.Reply = func([]byte) []byte {
					m.W.At(m.W.Now(), func() { m.W.Faults.Reset(test.peer.Conn) })
					return nil
				}
			}
			fail := func() {
				c := m.Post(10)
				m.Do(c)
				m.Finish(c)
				if c.Code != "upstream-connect" {
					t.Errorf("status %d %s, want upstream-connect", c.Status, c.Code)
				}
			}
			for range 5 {
				fail()
			}
			m.W.Run(10 * time.Second)
			fail()
			lines := strings.FieldsFunc(m.Consumer.LogText.String(), func(r rune) bool { return r == '\n' })
			for i := range lines {
				_, lines[i], _ = strings.Cut(lines[i], "level=WARN ")
			}
			if want := []string{test.line + " omitted=0", test.line + " omitted=14"}; !slices.Equal(lines, want) {
				t.Errorf("the log is\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
			}
			m.Settled()
		})
	}
}

// ending is a loop whose dials end as they do when the process ends.
type ending struct{ loop.Loop }

func (l ending) Dial(_ string, _ time.Duration, r loop.Receiver) {
	l.Post(func() { r.OnClose(nil) })
}

func TestDialsEndedByProcessAreNotLogged(t *testing.T) {
	for _, direct := range []bool{false, true} {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{OneHop: direct, Dialler: func(l loop.Loop) loop.Loop { return ending{l} }})
		c := m.Post(10)
		m.Do(c)
		m.Finish(c)
		if c.Code != "upstream-connect" || m.Consumer.LogText.Len() > 0 {
			t.Errorf("%s, and the log says %s", c.Code, m.Consumer.LogText.String())
		}
		m.Settled()
	}
}
