package service

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/affinity"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/shard"
)

// TestJoinRandom: a random key is drawn for a stream that has none, and for no other: a draw that is not used would
// change all later ones.
func TestJoinRandom(t *testing.T) {
	keys := func(h config.Hash) *Sessions {
		return &Sessions{Keys: affinity.New(&config.LB{Policy: config.LBConsistentHash, Hash: h})}
	}
	for name, c := range map[string]struct {
		sessions *Sessions
		client   shard.Client
		draws    bool
	}{
		"no keys":          {&Sessions{}, shard.Client{Addr: "10.0.0.1:1"}, false},
		"of a session":     {keys(config.Hash{Cookie: "c"}), shard.Client{Session: shard.Session{Key: 7}}, false},
		"of the client":    {keys(config.Hash{Source: true}), shard.Client{Addr: "10.0.0.1:1"}, false},
		"none of a header": {keys(config.Hash{Header: "h"}), shard.Client{Addr: "10.0.0.1:1"}, true},
	} {
		rng := rand.NewPCG(1, 2)
		key, _ := c.sessions.Join(&c.client, rng)
		if drawn := *rng != *rand.NewPCG(1, 2); drawn != c.draws {
			t.Errorf("%s: drawn %t, want %t", name, drawn, c.draws)
		}
		if wants := c.sessions.Keys != nil; (key != 0) != wants {
			t.Errorf("%s: key %d", name, key)
		}
	}
}

// TestOfStream: a stream gets what a request of its session would: the endpoint of a sticky cookie, which is removed, and the key,
// with a cookie if it begins a session.
func TestOfStream(t *testing.T) {
	session := affinity.New(&config.LB{Policy: config.LBConsistentHash, Hash: config.Hash{Cookie: "k", TTL: time.Hour}})
	sticky := affinity.NewSticky(&config.Sticky{Cookie: "s", Secret: "secret"})
	for name, c := range map[string]struct {
		sessions *Sessions
		cookie   string
		pin      string
		left     string // of the cookies of the request
		isKeyed  bool
		begins   bool
	}{
		"nothing":       {nil, "s=x", "", "s=x", false, false},
		"sticky":        {&Sessions{Sticky: sticky}, "a=b; s=x", "x", "a=b", false, false},
		"sticky, none":  {&Sessions{Sticky: sticky}, "a=b", "", "a=b", false, false},
		"key":           {&Sessions{Keys: session}, "k=1", "", "k=1", true, false},
		"a new session": {&Sessions{Keys: session, Sticky: sticky}, "s=x; a=b", "x", "a=b", true, true},
	} {
		req := &protocol.Request{Headers: []protocol.Header{{Name: []byte("cookie"), Value: []byte(c.cookie)}}}
		of := c.sessions.OfStream(req, "10.0.0.1:1", true, rand.NewPCG(1, 2))
		left := string(protocol.Find(req.Headers, "cookie"))
		if of.Pin != c.pin || left != c.left || (of.Key != 0) != c.isKeyed || (len(of.Cookie) > 0) != c.begins || of.Secure != (c.sessions != nil) {
			t.Errorf("%s: %+v, left %q", name, of, left)
		}
	}
	// A request that is no beginning has no cookie, and a random key.
	ss, rng := &Sessions{Keys: session}, rand.NewPCG(1, 2)
	cookie, key := ss.Key([]byte("kept"), &protocol.Request{}, "", false, false, rng)
	if want := rand.NewPCG(1, 2).Uint64(); string(cookie) != "kept" || key != want {
		t.Errorf("cookie %q, key %d, want %d", cookie, key, want)
	}
}

// TestPinsOfSnapshot: the cookie of a request names an endpoint of the latest snapshot.
func TestPinsOfSnapshot(t *testing.T) {
	c, l := config.DefaultService("s"), &stillLoop{}
	c.LB.Sticky = config.Sticky{Cookie: "at", Secret: "0123456789abcdef"}
	s := servicesOn(config.Default(), c, []*stillLoop{l})[0]
	for _, addrs := range [][]string{{"a", "b"}, {"b", "c"}} {
		s.Shared.Update(snapshotOf(addrs...), "")
		l.runPosts()
		for _, addr := range []string{"a", "b", "c"} {
			req := &protocol.Request{Headers: []protocol.Header{{Name: []byte("cookie"), Value: []byte("at=" + s.Sessions.Sticky.ID(addr))}}}
			if pin := s.Sessions.TakePin(req); pin != s.Set.Lookup(addr) {
				t.Errorf("of %q: the cookie of %s names %v", addrs, addr, pin)
			}
		}
	}
}
