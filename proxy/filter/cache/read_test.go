package cache

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/caching"
	"github.com/remora-proxy/remora/proxy/caching/store"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/service"
	"github.com/remora-proxy/remora/proxy/shard"
)

// filterOf returns the filter of a route with a cache.
func filterOf(c config.Cache) *filter {
	w := shard.New(&shard.Process{Loops: 1}, 0, quiet{}, nil, 1)
	w.Process.Budget.Configure(&config.Limits{Buffered: 1 << 20})
	return New(&exchange.FilterPlace{
		Shard: w, Pool: exchange.NewPool(w), Route: &config.Route{Cache: c}, Service: &service.Service{Shard: w, Config: &config.Service{}},
	}).(*filter)
}

// TestHashes: the hash of a request is that of its target. Headers in the key make others of it, and change nothing of the target.
func TestHashes(t *testing.T) {
	for _, keys := range [][]string{nil, {"x-tier"}} {
		f := filterOf(config.Cache{Bytes: 1 << 20, Key: keys})
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

// TestRefreshOfFirst: a refresh has the tag of the stored response that it is for, also if the tag is the first of its headers and
// another response was served before. No application of a mesh sends a tag first.
func TestRefreshOfFirst(t *testing.T) {
	f := filterOf(config.Cache{Bytes: 1 << 20})
	ex := f.pool.Exchange(nil)
	ex.Request.Codec, ex.Request.Method, ex.Request.Path = protocol.CodecHTTP, []byte("GET"), []byte("/")
	f.read(&ex.Request)
	f.value = []byte("of another response")
	fields := []byte("etag: \"a\"\r\n")
	f.store.Put(0, f.in.hash, f.in.key, &store.Meta{Until: time.Hour, Status: 200, Fields: uint32(len(fields)), Flags: caching.FlagTag}, fields, []byte("body"))
	c := f.refresher.prepare(ex, f.store.Find(f.in.hash, f.in.key), time.Second)
	if got := protocol.Find(c.Request.Headers, "if-none-match"); string(got) != `"a"` || len(c.Request.Headers) != 1 {
		t.Errorf("the refresh has the headers %q", c.Request.Headers)
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
