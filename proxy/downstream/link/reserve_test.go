package link_test

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// TestReserve: links with many requests leave the last eighth of max_pending to links with one. A link that
// is alone may take all places.
func TestReserve(t *testing.T) {
	for _, c := range []struct {
		name               string
		others             int  // links with one request, before the link with many
		alone              bool // the requests of the link with many are alone on their connections
		requests, inFlight int  // of the link with many
	}{
		{"all places", 0, false, 16, 16}, {"one more", 0, false, 17, 16},
		{"beside another, unreserved places", 1, false, 13, 13}, {"beside another, one more", 1, false, 14, 13},
		{"of many connections beside another", 1, true, 15, 15}, {"of many connections, one more", 1, true, 16, 15},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Provider: "max_pending: 16"})
			m.Apps[0].FrozenUntil = m.W.Now() + time.Second
			var peers []*proxytest.Peer
			dial := func(requests int, alone bool) *proxytest.Peer {
				req := *proxytest.LinkRequest
				req.Alone = alone
				p := &proxytest.Peer{Says: proxytest.LinkFrames(func(w *link.Writer) {
					for id := range uint64(requests) {
						w.Request(id+1, &req, time.Minute, nil)
					}
				})}
				m.DialIngress(p)
				m.W.Run(100 * time.Millisecond)
				peers = append(peers, p)
				return p
			}
			check := func(what string, p *proxytest.Peer, refused int) {
				t.Helper()
				got := &proxytest.Refusals{Why: map[link.Reason]int{}}
				if err := link.NewDialer(link.Settings{}, link.ReaderLimits{}, got).Feed(p.Heard); err != nil {
					t.Fatal(err)
				}
				if got.Why[link.Overload] != refused || len(got.Why) > 1 {
					t.Errorf("%s: refused %v, want %d for overload", what, got.Why, refused)
				}
			}
			for range c.others {
				dial(1, false)
			}
			check("many requests", dial(c.requests, c.alone), c.requests-c.inFlight)
			for taken := c.others + c.inFlight; taken < 16; taken++ {
				check("one request", dial(1, false), 0)
			}
			check("one request too many", dial(1, false), 1)
			m.Clients.Do(func() {
				for _, p := range peers {
					p.Conn.Close()
				}
			})
			m.Settled()
		})
	}
}

// TestReserveOfLink: the clients of a consumer that have one request each use the reserve of the provider, too,
// although all of their requests come over one link.
func TestReserveOfLink(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Service: "max_pending: 16", Provider: "max_pending: 16"})
	m.Apps[0].FrozenUntil = m.W.Now() + time.Second
	other := &proxytest.Peer{Says: proxytest.LinkFrames(func(w *link.Writer) {
		w.Request(1, proxytest.LinkRequest, time.Minute, nil)
	})}
	m.DialIngress(other)
	m.W.Run(100 * time.Millisecond)
	clients := m.Burst(15, 10)
	m.OK(clients...)
	m.Clients.Do(func() { other.Conn.Close() })
	m.Settled()
}
