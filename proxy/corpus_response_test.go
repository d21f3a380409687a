package proxy_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/corpus"
	"github.com/remora-proxy/remora/proxy"
	"github.com/remora-proxy/remora/proxy/sim"
)

// hostile is a replica that answers requests for /case with a case, and others
// with their target.
type hostile struct {
	on  *sim.Loop
	c   *corpus.Case
	gap time.Duration
}

func (h *hostile) accept() proxy.Stream {
	p, done := &peer{}, 0
	p.reply = func(heard []byte) []byte {
		m, n, err := corpus.ParseRequest(heard[done:])
		if err == io.ErrUnexpectedEOF {
			return nil
		}
		if done += n; err != nil || m.Target != "/case" {
			return fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(m.Target), m.Target)
		}
		utter(h.on, p.conn, h.c.Bytes(), h.gap, func() {
			if h.c.Closes {
				p.conn.Drain()
			}
		})
		return nil
	}
	return p
}

// TestCorpusUpstream: of what an application says, its caller gets the answer that
// the corpus accepts, or one 502 or 504; and the next requests, on this connection
// and on another, get their own.
func TestCorpusUpstream(t *testing.T) {
	cases, err := corpus.Responses(corpusDir)
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
						m := newMesh(t, meshOptions{seed: how.seed, apps: 1, direct: direct, limits: corpusYAML,
							service: ", timeout: 30s", provider: ", timeout: 30s"})
						m.w.Options.Cut = how.cut
						if err := m.hears(c, how.gap); err != nil {
							t.Errorf("%s: %v\n%.300q", c.Where, err, c.Bytes())
						}
						m.settled()
					})
				}
			})
		}
	}
}

// hears has the application say a case, and checks what its callers get.
func (m *mesh) hears(c *corpus.Case, gap time.Duration) error {
	m.apps[0].stop()
	h := &hostile{on: m.w.Loop(m.apps[0].host + "-hostile"), c: c, gap: gap}
	m.w.Listen(m.apps[0].addr, h.on, h.accept)
	p := &peer{says: fmt.Appendf(nil, "%s /case HTTP/1.1\r\nHost: h\r\n\r\n", c.Method)}
	m.clients.Do(func() { m.clients.Dial(egress, time.Second, p) })
	m.w.Run(time.Minute) // past the deadline, and any of the case's bytes
	due := []corpus.Answer{c.Answer()}
	for i := range 3 {
		on := p
		if i == 2 {
			on = &peer{}
			m.clients.Do(func() { m.clients.Dial(egress, time.Second, on) })
			m.w.Run(10 * time.Millisecond)
			due = nil
		}
		target := fmt.Sprintf("/next%d", i)
		m.clients.Do(func() { on.conn.Write(fmt.Appendf(nil, "GET %s HTTP/1.1\r\nHost: h\r\n\r\n", target)) })
		m.w.Run(time.Second)
		due = append(due, corpus.Answer{Method: "GET", Status: 200, Body: target})
		if err := corpus.CheckAnswers(on.heard, due); err != nil {
			return err
		}
		if bytes.Contains(on.heard, []byte("smuggled")) {
			return errors.New("the caller hears what was hidden")
		}
	}
	return nil
}
