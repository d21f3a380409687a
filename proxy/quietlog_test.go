package proxy_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy"
)

// TestEndpointsNotConnectedAreLogged: an operator reads why an endpoint takes no
// connection, once in ten seconds however many requests fail for it.
func TestEndpointsNotConnectedAreLogged(t *testing.T) {
	silent := func([]byte) []byte { return nil }
	empty := func([]byte) []byte { return []byte{} }
	http := func([]byte) []byte { return []byte("HTTP/1.1 400 Bad Request\r\n\r\n") }
	for _, test := range []struct {
		name string
		peer *peer // at the endpoint; nil: nobody
		line string
	}{
		{"nobody", nil, `msg="endpoint not connected" service=compute endpoint=10.0.1.1:15006 error="connection refused"`},
		{"silent", &peer{reply: silent}, `msg="endpoint not connected" service=compute endpoint=10.0.1.1:15006 ` +
			`error="proxy: the peer did not begin to speak the link protocol within connect_timeout"`},
		{"closes", &peer{reply: empty, hangs: true}, `msg="endpoint not connected" service=compute endpoint=10.0.1.1:15006 ` +
			`error="proxy: the peer closed before it spoke the link protocol; it may want TLS, or speak another protocol"`},
		{"resets", &peer{}, `msg="endpoint not connected" service=compute endpoint=10.0.1.1:15006 ` +
			`error="proxy: the peer closed before it spoke the link protocol; it may want TLS, or speak another protocol: connection reset by peer"`},
		{"http", &peer{reply: http}, `msg="link closed: malformed input" peer=10.0.1.1:15006 ` +
			`error="link: the peer does not speak the link protocol (link_magic)"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := newMesh(t, meshOptions{apps: 1})
			if test.peer == nil {
				m.nodes[1].stop[0]()
			} else {
				m.impostor(test.peer)
			}
			if test.name == "resets" {
				test.peer.reply = func([]byte) []byte {
					m.w.At(m.w.Now(), func() { m.w.Reset(test.peer.conn) })
					return nil
				}
			}
			fail := func() {
				c := m.post(10)
				m.do(c)
				m.finish(c)
				if c.code != "upstream-connect" {
					t.Errorf("status %d %s, want upstream-connect", c.status, c.code)
				}
			}
			for range 5 {
				fail()
			}
			m.w.Run(10 * time.Second)
			fail()
			lines := strings.FieldsFunc(m.consumer.said.String(), func(r rune) bool { return r == '\n' })
			for i := range lines {
				_, lines[i], _ = strings.Cut(lines[i], "level=WARN ")
			}
			if want := []string{test.line + " omitted=0", test.line + " omitted=14"}; !slices.Equal(lines, want) {
				t.Errorf("the log is\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
			}
			m.settled()
		})
	}
}

// ending is a loop that ends each dial as it does when the process ends.
type ending struct{ proxy.Loop }

func (l ending) Dial(_ string, _ time.Duration, s proxy.Stream) {
	l.Post(func() { s.OnClose(nil) })
}

func TestDialsThatEndWithTheProcessAreNotLogged(t *testing.T) {
	for _, direct := range []bool{false, true} {
		m := newMesh(t, meshOptions{direct: direct, dialler: func(l proxy.Loop) proxy.Loop { return ending{l} }})
		c := m.post(10)
		m.do(c)
		m.finish(c)
		if c.code != "upstream-connect" || m.consumer.said.Len() > 0 {
			t.Errorf("%s, and the log says %s", c.code, m.consumer.said.String())
		}
		m.settled()
	}
}
