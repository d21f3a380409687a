package service

import (
	"math/rand/v2"
	"testing"

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
