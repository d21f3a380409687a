package http_test

import (
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/proxytest"
)

// One empty line before a request is ignored and a second one refused, however
// they arrive (RFC 9112 section 2.2); with no request behind it the connection
// is idle, and closes as such.
func TestEmptyLines(t *testing.T) {
	get := "GET / HTTP/1.1\r\nHost: compute\r\n\r\n"
	for _, c := range []struct {
		says []string
		want string // of the answers
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
			t.Errorf("%q: closed before it was idle for long", c.says)
		}
		m.W.RunUntil(func() bool { return p.Ended }, 10*time.Second)
		var got []string
		for _, answer := range strings.Split(string(p.Heard), "HTTP/1.1 ")[1:] {
			got = append(got, answer[:3])
		}
		if strings.Join(got, " ") != c.want || !p.Ended {
			t.Errorf("%q: answered %v, want %s; closed %t", c.says, got, c.want, p.Ended)
		}
		m.Settled()
	}
}

// Some clients end a body with an empty line more. It is no request.
func TestEmptyLineAfterABody(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1})
	c := m.Post(10)
	c.Raw = append(c.Raw, "\r\n"...)
	cl := m.Do(c)
	m.Finish(c)
	m.OK(c)
	m.W.Run(time.Minute)
	if cl.Ended || len(cl.In) > 0 {
		t.Errorf("ended %v, got %q a minute later", cl.Ended, cl.In)
	}
	m.Settled()
}
