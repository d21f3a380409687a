package affinity

import (
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/racetest"
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/config"
)

var stickyConfig = config.Sticky{Cookie: "srv", TTL: time.Hour, Secret: "0123456789abcdef"}

// lines are the headers as text.
func lines(hs []protocol.Header) string {
	var all []string
	for _, h := range hs {
		all = append(all, h.String())
	}
	return strings.Join(all, "|")
}

// TestStickyRequest: the first cookie with the name counts, and none reaches the application.
func TestStickyRequest(t *testing.T) {
	s := NewSticky(&stickyConfig)
	for _, c := range []struct {
		headers     []string
		value, rest string
	}{
		{[]string{"a", "b"}, "", "a: b"},
		{[]string{"Cookie", "srv=x"}, "x", ""},
		{[]string{"Cookie", "srv=x", "a", "b"}, "x", "a: b"},
		{[]string{"cookie", "srv=x; a=b"}, "x", "cookie: a=b"},
		{[]string{"cookie", "a=b; srv=x"}, "x", "cookie: a=b"},
		{[]string{"cookie", "a=b; srv=x;c=d; e=f"}, "x", "cookie: a=b;c=d; e=f"},
		{[]string{"cookie", "a=b; SRV=x; xsrv=y; srvx=z"}, "", "cookie: a=b; SRV=x; xsrv=y; srvx=z"},
		{[]string{"cookie", "srv=x; a=b; srv=y", "Cookie", "srv=z", "cookie", "c=d; srv=w"}, "x", "cookie: a=b|cookie: c=d"},
		{[]string{"cookie", "srv; a=b; srv="}, "", "cookie: a=b"},
		{[]string{"cookie", "a=b; srv"}, "", "cookie: a=b"},
		{[]string{"cookie", "a=srv=x; ;b"}, "", "cookie: a=srv=x; ;b"},
	} {
		req := request("/", c.headers...)
		for i := range req.Headers {
			req.Headers[i].Value = []byte(string(req.Headers[i].Value)) // memory to change
		}
		if got := string(s.Find(req)); got != c.value {
			t.Errorf("%q: found %q", c.headers, got)
		}
		before := req.Headers
		for range 2 {
			if s.Remove(req); lines(req.Headers) != c.rest {
				t.Errorf("%q: left %q, want %q", c.headers, lines(req.Headers), c.rest)
			}
		}
		for _, h := range before[len(req.Headers):] {
			if h.Name != nil || h.Value != nil {
				t.Errorf("%q: the memory of %q is kept", c.headers, h.String())
			}
		}
	}
}

// TestStickyResponse: the application can't set the cookie, and no cache keeps a response with one.
func TestStickyResponse(t *testing.T) {
	s, session := NewSticky(&stickyConfig), stickyConfig
	session.TTL = 0
	const own = "Set-Cookie: srv=own; Path=/|a: b|set-cookie: SRV=c|Set-Cookie: srvx=d|set-cookie: srv|set-cookie: srv; Path=/a=b"
	for _, c := range []struct {
		cookies Cookies
		want    string
	}{
		{Cookies{}, own},
		{s.Keep(), "a: b|set-cookie: SRV=c|Set-Cookie: srvx=d"},
		{s.Give(nil, "x", false), "a: b|set-cookie: SRV=c|Set-Cookie: srvx=d|Set-Cookie: srv=x; Path=/; Max-Age=3600; HttpOnly; SameSite=Lax|Cache-Control: private"},
		{NewSticky(&session).Give(nil, "x", true), "a: b|set-cookie: SRV=c|Set-Cookie: srvx=d|Set-Cookie: srv=x; Path=/; HttpOnly; SameSite=Lax; Secure|Cache-Control: private"},
		{Cookies{Set: []byte("sid=x")}, own + "|Set-Cookie: sid=x|Cache-Control: private"},
	} {
		var hs []protocol.Header
		for line := range strings.SplitSeq(own, "|") {
			name, value, _ := strings.Cut(line, ": ")
			hs = append(hs, protocol.Header{Name: []byte(name), Value: []byte(value)})
		}
		if got := lines(c.cookies.Apply(hs)); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

// TestStickyID: the value is the same in all processes with the secret, and differs by address and secret.
func TestStickyID(t *testing.T) {
	s, other := NewSticky(&stickyConfig), stickyConfig
	other.Secret += "g"
	id := s.ID("10.0.0.1:80")
	// A value of the past: other processes may run other releases.
	if id != "T74bIs45Unxc" {
		t.Errorf("the value is %s", id)
	}
	if id == s.ID("10.0.0.1:8") || id == NewSticky(&other).ID("10.0.0.1:80") {
		t.Error("another address or secret has the same value")
	}
	if NewSticky(&config.Sticky{}) != nil {
		t.Error("a service without the setting has a cookie")
	}
}

func TestStickyAllocations(t *testing.T) {
	if racetest.Enabled {
		t.Skip("the race detector allocates")
	}
	s, memory := NewSticky(&stickyConfig), make([]byte, 0, 256)
	line := []byte("a=b; srv=x; c=d")
	req := request("/", "cookie", "")
	res := make([]protocol.Header, 0, 8)
	if n := testing.AllocsPerRun(100, func() {
		req.Headers[0].Value = append(memory, line...)
		s.Find(req)
		s.Remove(req)
		s.Give(memory, "x", true).Apply(res[:0])
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
