package http2

import (
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
)

// TestInterim: interim responses arrive ahead of the final head, and none after it. A client that waits
// with its body says so, until it gets status 100.
func TestInterim(t *testing.T) {
	p := newPair(t, Options{}, Options{})
	id := p.client.c.RequestHead(typical(), "http", -1, true).ID()
	if err := p.run(); err != nil {
		t.Fatal(err)
	}
	st := p.server.c.streams.get(id)
	interim := func(status int, headers ...string) {
		p.server.c.Interim(st, &protocol.Response{Status: status, Headers: fields(headers...)})
	}
	if !st.ExpectsContinue() {
		t.Error("the server does not know that the client waits")
	}
	interim(103, "Link: </a>", "link: </b>", "Connection: x", "Content-Length: 5")
	if interim(102); !st.ExpectsContinue() {
		t.Error("the client waits no more, after status 102")
	}
	if interim(100); st.ExpectsContinue() {
		t.Error("the client still waits, after status 100")
	}
	p.server.c.ResponseHead(st, typicalResponse())
	interim(103)
	p.server.c.Finish(st, nil)
	if err := p.run(); err != nil {
		t.Fatal(err)
	}
	got := p.client.got[id]
	if s, want := strings.Join(got.interim, " "), "103 [link: </a> link: </b>] 102 [] 100 []"; s != want {
		t.Errorf("interim responses %s, want %s", s, want)
	}
	if !got.head || !got.end || got.why != nil || got.res.Status != 200 {
		t.Errorf("head %t, end %t, %v, status %d", got.head, got.end, got.why, got.res.Status)
	}
}

// TestInterimFlood: a response may have any number of interim responses, but not without end at once.
func TestInterimFlood(t *testing.T) {
	flood := func(pause time.Duration) (n int, err error) {
		p, l := newClient(t, Options{Floods: Floods{Others: 20}}), newLibrary()
		p.c.Request(typical(), "http", nil)
		l.WriteSettings()
		for now := time.Duration(0); n < 1000 && err == nil; n++ {
			now += pause
			p.c.Advance(now)
			l.headers(1, false, ":status: 102")
			err = l.feed(p)
		}
		passed := n
		if err != nil {
			passed-- // the last is refused
		}
		if got := len(p.got[1].interim); got != passed {
			t.Errorf("one each %s: %d are passed on, want %d", pause, got, passed)
		}
		return n, err
	}
	if n, err := flood(0); err != error(ErrOthers) || n < freeInterim+18 || n > freeInterim+21 {
		t.Errorf("at once: %v after %d", err, n)
	}
	if n, err := flood(time.Second); err != nil {
		t.Errorf("one each second: %v after %d", err, n)
	}
}

// TestExpects: a request waits for an interim response if it says so, and has a body.
func TestExpects(t *testing.T) {
	for _, c := range []struct {
		extra string
		end   bool
		want  bool
	}{{"|expect: 100-continue", false, true}, {"|expect: 100-Continue", false, true}, {"|expect: 100-continue", true, false}, {"|expect: x", false, false}, {"", false, false}} {
		p, _ := request(t, requestLines+c.extra, c.end)
		if st := p.c.streams.get(1); st.ExpectsContinue() != c.want {
			t.Errorf("%q, end %t: waits %t", c.extra, c.end, !c.want)
		}
	}
}
