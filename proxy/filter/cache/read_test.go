package cache

import (
	"testing"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/caching/store"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/service"
	"github.com/remora-proxy/remora/proxy/shard"
)

// TestHashes: the hash of a request is that of its target. Headers in the key make others of it, and change nothing of the target.
func TestHashes(t *testing.T) {
	for _, keys := range [][]string{nil, {"x-tier"}} {
		w := shard.New(&shard.Process{Loops: 1}, 0, quiet{}, nil, 1)
		f := New(&exchange.FilterPlace{
			Shard: w, Pool: exchange.NewPool(w), Route: &config.Route{Cache: config.Cache{Bytes: 1 << 20, Key: keys}},
			Service: &service.Service{Shard: w, Config: &config.Service{}},
		}).(*filter)
		targets, hashes := map[uint64]bool{}, map[uint64]bool{}
		for _, path := range []string{"/a", "/b"} {
			for _, value := range []string{"1", "2"} {
				f.read(&protocol.Request{
					Codec: protocol.CodecHTTP, Method: []byte("GET"), Path: []byte(path),
					Headers: []protocol.Header{{Name: []byte("x-tier"), Value: []byte(value)}},
				})
				targets[f.in.target], hashes[f.in.hash] = true, true
				if isTarget := f.in.hash == f.in.target; isTarget != (keys == nil) {
					t.Errorf("with the key %q the hash is that of the target: %t", keys, isTarget)
				}
			}
		}
		if want := 2 + 2*len(keys); len(targets) != 2 || len(hashes) != want {
			t.Errorf("with the key %q: %d targets and %d hashes of two paths with two headers", keys, len(targets), len(hashes))
		}
	}
}

// TestHeadOfStored: the response to a HEAD has the length of the stored body, and no body.
func TestHeadOfStored(t *testing.T) {
	f := &filter{pool: exchange.NewPool(shard.New(&shard.Process{Loops: 1}, 0, quiet{}, nil, 1))}
	for _, method := range []string{"GET", "HEAD"} {
		var ex exchange.Exchange
		ex.Request.Method = []byte(method)
		res := f.response(&ex, &store.Meta{Status: 200}, nil, []byte("body"), nil)
		if isHead := method == "HEAD"; isHead != (res.Body == nil) || isHead && res.DeclaredLength != 4 {
			t.Errorf("%s: a body of %d bytes, and a length of %d", method, len(res.Body), res.DeclaredLength)
		}
	}
}
