package proxy_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/corpus"
	"github.com/remora-proxy/remora/proxy"
)

const corpusDir = "../protocol/http1/testdata"

// corpusYAML is the limits that the corpus is written for, and no timeout that
// what comes byte by byte could meet.
var corpusYAML = fmt.Sprintf(`limits: {header: %d, headers: %d, message: %d}
timeouts: {header: 10m, body: 10m, idle: 1h}`, corpus.HeaderLimit, corpus.HeadersLimit, corpus.MessageLimit)

// feeding is a way in which bytes are fed.
type feeding struct {
	name string
	cut  float64       // sim.Options.Cut
	gap  time.Duration // between single bytes; 0: all at once
	seed uint64
}

var feedings = []feeding{
	{"whole", 0, 0, 1},
	{"per byte", 0, time.Millisecond, 2},
	{"at random", 0.7, 0, 3},
	{"at random again", 0.9, 0, 4},
}

// skips leaves three of four cases to the other feedings under the race detector:
// a simulation is one goroutine, and slow under it.
func (f *feeding) skips(i int) bool {
	return raceEnabled && i%len(feedings) != int(f.seed)%len(feedings)
}

// utter writes b on c, a byte at a time if there is a gap, and calls then behind it.
func utter(l proxy.Loop, c proxy.Conn, b []byte, gap time.Duration, then func()) {
	t := &proxy.Timer{}
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

// recorder is an application that answers each request with its number.
type recorder struct{ corpus.Record }

func (r *recorder) accept() proxy.Stream {
	p, on, fed := &peer{}, corpus.NewRecorder(&r.Record), 0
	p.reply = func(heard []byte) (out []byte) {
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

var next = corpus.Message{Method: "GET", Target: "/next", Host: "next"}

// TestCorpusDownstream: of what a client says, the application gets each request
// that the corpus accepts, and nothing else; the client gets its answers in their
// order, and the next request on the connection its own.
func TestCorpusDownstream(t *testing.T) {
	cases, err := corpus.Requests(corpusDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, direct := range []bool{true, false} {
		for _, how := range feedings {
			t.Run(fmt.Sprintf("direct %v, %s", direct, how.name), func(t *testing.T) {
				for i := range cases {
					c := &cases[i]
					if how.skips(i) {
						continue
					}
					t.Run(c.Name, func(t *testing.T) {
						m := newMesh(t, meshOptions{seed: how.seed, apps: 1, direct: direct, limits: corpusYAML})
						m.w.Options.Cut = how.cut
						if err := m.tell(c, how.gap); err != nil {
							t.Errorf("%s: %v\n%.300q", c.Where, err, c.Bytes())
						}
						m.settled()
					})
				}
			})
		}
	}
}

// tell says a case to the consumer, and checks what comes of it.
func (m *mesh) tell(c *corpus.Case, gap time.Duration) error {
	r := &recorder{}
	m.apps[0].stop()
	m.w.Listen(m.apps[0].addr, m.w.Loop(m.apps[0].host+"-recorder"), r.accept)
	p := &peer{}
	m.clients.Do(func() { m.clients.Dial(egress, time.Second, p) })
	m.w.Run(10 * time.Millisecond)
	said := c.Bytes()
	m.clients.Do(func() { utter(m.clients, p.conn, said, gap, func() {}) })
	m.w.Run(time.Duration(len(said))*gap + time.Second)

	due := c.Answers()
	if err := corpus.CheckAnswers(p.heard, due); err != nil {
		return err
	}
	if closes := !c.Open() && len(c.Of(corpus.Incomplete)) == 0; p.ended != closes {
		return fmt.Errorf("connection closed: %v", p.ended)
	}
	if !c.Open() {
		m.clients.Do(func() { p.conn.Close() })
		p = &peer{}
		m.clients.Do(func() { m.clients.Dial(egress, time.Second, p) })
		m.w.Run(10 * time.Millisecond)
		due = nil
	}
	m.clients.Do(func() { p.conn.Write([]byte(nextRequest)) })
	m.w.Run(time.Second)
	forwarded := append(c.Forwarded(), next)
	due = append(due, corpus.Answer{Method: "GET", Status: 200, Body: corpus.Numbered(len(forwarded))})
	return errors.Join(corpus.CheckAnswers(p.heard, due), r.Check(forwarded))
}
