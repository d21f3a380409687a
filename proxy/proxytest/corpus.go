package proxytest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/remora-proxy/remora/internal/corpus"
	"github.com/remora-proxy/remora/internal/racetest"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/sim"
)

// CorpusDir is the corpus, from a package two folders below proxy.
const CorpusDir = "../../../protocol/http1/testdata"

// CorpusYAML has the limits that the corpus is written for, and timeouts that no case
// reaches when it is sent byte by byte.
var CorpusYAML = fmt.Sprintf(`limits: {header: %d, headers: %d, message: %d}
timeouts: {header: 10m, body: 10m, idle: 1h}`, corpus.HeaderLimit, corpus.HeadersLimit, corpus.MessageLimit)

// feeding is a way in which bytes are fed.
type feeding struct {
	Name string
	Cut  float64       // sim.Options.Cut
	Gap  time.Duration // between single bytes; 0 means all at once
	Seed uint64
}

// Skips reports whether case i is left to the other feedings. Under the race detector each
// case has one feeding: a simulation is one goroutine, so the detector finds nothing.
func (f *feeding) Skips(i int) bool {
	return racetest.Enabled && i%len(Feedings) != int(f.Seed)%len(Feedings)
}

// Feedings are the ways in which each case is fed.
var Feedings = []feeding{
	{"whole", 0, 0, 1},
	{"per byte", 0, time.Millisecond, 2},
	{"at random", 0.7, 0, 3},
	{"at random again", 0.9, 0, 4},
}

// Feed writes b to c, a byte at a time if there is a gap, and then calls then.
func Feed(l loop.Loop, c loop.Conn, b []byte, gap time.Duration, then func()) {
	t := &loop.Timer{}
	t.Fire = func() {
		switch {
		case len(b) == 0:
			then()
			return
		case gap == 0:
			c.Write(b)
			b = nil
		default:
			c.Write(b[:1])
			b = b[1:]
		}
		l.After(gap, t)
	}
	t.Fire()
}

// recorder is an application that responds to each request with its number.
type recorder struct{ corpus.Record }

func (r *recorder) accept() loop.Receiver {
	p, on, fed := &Peer{}, corpus.NewRecorder(&r.Record), 0
	p.Reply = func(heard []byte) (out []byte) {
		before := len(r.Requests)
		for i, m := range on.Feed(heard[fed:]) {
			answer, _ := corpus.NumberedReply(&m, before+i+1)
			out = append(out, answer...)
		}
		fed = len(heard)
		return out
	}
	return p
}

const nextRequest = "GET /next HTTP/1.1\r\nHost: next\r\n\r\n"

// NextMessage is the request that nextRequest encodes.
var NextMessage = corpus.Message{Method: "GET", Target: "/next", Host: "next"}

// caseResponder is a replica that responds to a request for /case with a case, and to
// others with their target.
type caseResponder struct {
	on  *sim.Loop
	c   *corpus.Case
	gap time.Duration
}

func (h *caseResponder) accept() loop.Receiver {
	p, done := &Peer{}, 0
	p.Reply = func(heard []byte) []byte {
		m, n, err := corpus.ParseRequest(heard[done:])
		if err == io.ErrUnexpectedEOF {
			return nil
		}
		if done += n; err != nil || m.Target != "/case" {
			return fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(m.Target), m.Target)
		}
		Feed(h.on, p.Conn, h.c.Bytes(), h.gap, func() {
			if h.c.Closes {
				p.Conn.Drain()
			}
		})
		return nil
	}
	return p
}

// CheckRequestCase sends a case to the consumer, and checks the responses and the requests
// that the application gets.
func CheckRequestCase(m *Mesh, c *corpus.Case, gap time.Duration) error {
	r := &recorder{}
	m.Apps[0].Stop()
	m.W.Net.Listen(m.Apps[0].Addr, m.W.Loop(m.Apps[0].Host+"-recorder"), r.accept)
	p := &Peer{}
	m.Clients.Do(func() { m.Clients.Dial(Egress, time.Second, p) })
	m.W.Run(10 * time.Millisecond)
	said := c.Bytes()
	m.Clients.Do(func() { Feed(m.Clients, p.Conn, said, gap, func() {}) })
	m.W.Run(time.Duration(len(said))*gap + time.Second)

	due := c.Answers()
	if err := corpus.CheckAnswers(p.Heard, due); err != nil {
		return err
	}
	if closes := !c.Open() && len(c.Of(corpus.Incomplete)) == 0; p.Ended != closes {
		return fmt.Errorf("connection closed: %v", p.Ended)
	}
	if !c.Open() {
		m.Clients.Do(func() { p.Conn.Close() })
		p = &Peer{}
		m.Clients.Do(func() { m.Clients.Dial(Egress, time.Second, p) })
		m.W.Run(10 * time.Millisecond)
		due = nil
	}
	m.Clients.Do(func() { p.Conn.Write([]byte(nextRequest)) })
	m.W.Run(time.Second)
	forwarded := append(c.Forwarded(), NextMessage)
	due = append(due, corpus.Answer{Method: "GET", Status: 200, Body: corpus.Numbered(len(forwarded))})
	return errors.Join(corpus.CheckAnswers(p.Heard, due), r.Check(forwarded))
}

// CheckResponseCase makes the application respond with a case, and checks the responses
// that its callers get.
func CheckResponseCase(m *Mesh, c *corpus.Case, gap time.Duration) error {
	m.Apps[0].Stop()
	h := &caseResponder{on: m.W.Loop(m.Apps[0].Host + "-hostile"), c: c, gap: gap}
	m.W.Net.Listen(m.Apps[0].Addr, h.on, h.accept)
	p := &Peer{Says: fmt.Appendf(nil, "%s /case HTTP/1.1\r\nHost: h\r\n\r\n", c.Method)}
	m.Clients.Do(func() { m.Clients.Dial(Egress, time.Second, p) })
	m.W.Run(time.Minute) // past the deadline and the last byte of the case
	due := []corpus.Answer{c.Answer()}
	for i := range 3 {
		on := p
		if i == 2 {
			on = &Peer{}
			m.Clients.Do(func() { m.Clients.Dial(Egress, time.Second, on) })
			m.W.Run(10 * time.Millisecond)
			due = nil
		}
		target := fmt.Sprintf("/next%d", i)
		m.Clients.Do(func() { on.Conn.Write(fmt.Appendf(nil, "GET %s HTTP/1.1\r\nHost: h\r\n\r\n", target)) })
		m.W.Run(time.Second)
		due = append(due, corpus.Answer{Method: "GET", Status: 200, Body: target})
		if err := corpus.CheckAnswers(on.Heard, due); err != nil {
			return err
		}
		if bytes.Contains(on.Heard, []byte("smuggled")) {
			return errors.New("the caller got a hidden response")
		}
	}
	return nil
}
