package proxytest

import (
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
