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

func (quiet) Now() time.Duration { return time.Second }

// filterOf returns the filter of a route with a cache, and what makes requests for it.
func filterOf(c config.Cache) (f *filter, get func(path string, headers ...protocol.Header) *exchange.Exchange) {
	w := shard.New(&shard.Process{Loops: 1}, 0, quiet{}, nil, 1)
	w.Process.Budget.Configure(&config.Limits{Buffered: 1 << 20})
	pool := exchange.NewPool(w)
	f = New(&exchange.FilterPlace{
		Shard: w, Pool: pool, Route: &config.Route{Cache: c}, Service: &service.Service{Shard: w, Config: &config.Service{}},
	}).(*filter)
	return f, func(path string, headers ...protocol.Header) *exchange.Exchange {
		ex := pool.Exchange(nil)
		ex.Request.Codec, ex.Request.Method, ex.Request.Path, ex.Request.Headers = protocol.CodecHTTP, []byte("GET"), []byte(path), headers
		return ex
	}
}

// TestHashes: the hash of a request is that of its target. Headers in the key make others of it, and change nothing of the target.
func TestHashes(t *testing.T) {
	tier := func(value string) protocol.Header {
		return protocol.Header{Name: []byte("x-tier"), Value: []byte(value)}
	}
	for _, keys := range [][]string{nil, {"x-tier"}} {
		f, get := filterOf(config.Cache{Bytes: 1 << 20, Key: keys})
		targets, hashes := map[uint64]bool{}, map[uint64]bool{}
		for _, path := range []string{"/a", "/b"} {
			for _, value := range []string{"1", "2"} {
				f.read(&get(path, tier(value)).Request)
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

// TestRefreshOfFirst: a refresh asks for a response other than the stored one, also if the tag is the first of what is stored.
func TestRefreshOfFirst(t *testing.T) {
	f, get := filterOf(config.Cache{Bytes: 1 << 20})
	ex := get("/")
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
	f, get := filterOf(config.Cache{Bytes: 1 << 20})
	ex := get("/")
	for _, method := range []string{"GET", "HEAD"} {
		ex.Request.Method = []byte(method)
		res := f.response(ex, &store.Meta{Status: 200}, nil, []byte("body"), nil)
		if isHead := method == "HEAD"; isHead != (res.Body == nil) || isHead && res.DeclaredLength != 4 {
			t.Errorf("%s: a body of %d bytes, and a length of %d", method, len(res.Body), res.DeclaredLength)
		}
	}
}

// TestRetired: a route that is gone stores nothing any more, and its memory is not counted.
func TestRetired(t *testing.T) {
	for _, retired := range []bool{false, true} {
		f, get := filterOf(config.Cache{Bytes: 1 << 20, TTL: time.Minute})
		ex := get("/")
		f.Early(ex)
		f.Request(ex)
		if retired {
			f.Retire()
		}
		res := f.pool.Response()
		res.Status = 200
		f.Response(ex, res)
		f.End(ex)
		if stored := f.store.Entries > 0; stored == retired || (f.counts.CacheBytes > 0) == retired {
			t.Errorf("retired %t: it stores %t, and counts %d bytes", retired, stored, f.counts.CacheBytes)
		}
	}
}

// TestBytes: entries, and what is known of their targets, take no more than the bytes of the setting.
func TestBytes(t *testing.T) {
	const bytes = 1 << 20
	f, _ := filterOf(config.Cache{Bytes: bytes})
	for i := range uint64(3000) {
		size := 100
		if i%500 == 0 {
			size = f.store.MaxEntry() - 2
		}
		f.store.Put(0, i<<40|i, []byte{byte(i), byte(i >> 8)}, &store.Meta{Until: time.Hour}, make([]byte, size))
	}
	if n := f.store.Bytes() + f.targets*shard.TargetBytes; n > bytes || n < bytes*9/10 {
		t.Errorf("%d bytes, want about %d", n, bytes)
	}
}
