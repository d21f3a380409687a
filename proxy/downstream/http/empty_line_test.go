package http_test

import (
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/proxytest"
)

// TestEmptyLines checks that one empty line before a request is ignored, and that a second one
// is refused, however they arrive (RFC 9112 section 2.2). Without a request after it the
// connection is idle, and closes by the idle timeout.
func TestEmptyLines(t *testing.T) {
	get := "GET / HTTP/1.1\r\nHost: compute\r\n\r\n"
	for _, c := range []struct {
		says []string
		want string // statuses
		ends time.Duration
	}{
		{[]string{get, get}, "200 200", 5 * time.Minute},
		{[]string{"\r\n" + get}, "200", 5 * time.Minute},
		{[]string{"\r\n", get}, "200", 5 * time.Minute},
		{[]string{"\r", "\n", get, "\r", "\n"}, "200", 5 * time.Minute},
		{[]string{get + "\r\n"}, "200", 5 * time.Minute},
		{[]string{get, "\r\n" + get}, "200 200", 5 * time.Minute},
		{[]string{"\r\n\r\n" + get}, "400", time.Second},
		{[]string{"\r\n", "\r\n", get}, "400", time.Second},
		{[]string{get, "\r\n", "\r", "\n"}, "200 400", time.Second},
	} {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1})
		p := m.DialAndSend(proxytest.Egress, "")
		for _, b := range c.says {
			m.W.Run(100 * time.Millisecond)
			m.Clients.Do(func() { p.Conn.Write([]byte(b)) })
		}
		m.W.Run(c.ends - time.Second)
		if p.Ended && c.ends > time.Second {
			t.Errorf("%q: closed before timeouts.idle", c.says)
		}
		m.W.RunUntil(func() bool { return p.Ended }, 10*time.Second)
		var got []string
		for _, response := range strings.Split(string(p.Heard), "HTTP/1.1 ")[1:] {
			got = append(got, response[:3])
		}
		if strings.Join(got, " ") != c.want || !p.Ended {
			t.Errorf("%q: responses %v, want %s; closed %t", c.says, got, c.want, p.Ended)
		}
		m.Settled()
	}
}

// TestEmptyLineAfterBody checks that an empty line after a body is no request. Some clients send
// one.
func TestEmptyLineAfterBody(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1})
	c := m.Post(10)
	c.Raw = append(c.Raw, "\r\n"...)
	cl := m.Do(c)
	m.OK(c)
	m.W.Run(time.Minute)
	if cl.Ended || len(cl.In) > 0 {
		t.Errorf("ended %v, got %q a minute later", cl.Ended, cl.In)
	}
	m.Settled()
}
