package cache

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/caching"
	"github.com/remora-proxy/remora/proxy/caching/store"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/shard"
)

// quiet is a loop without turns.
type quiet struct{ loop.Loop }

func (quiet) Defer(*loop.Flush)                {}
func (quiet) After(time.Duration, *loop.Timer) {}

// TestNeverIndexed: a stored response with a header that no compression may remember keeps that for all of its headers, and
// for no header of another response.
func TestNeverIndexed(t *testing.T) {
	f := &filter{pool: exchange.NewPool(shard.New(&shard.Process{Loops: 1}, 0, quiet{}, nil, 1))}
	fields := []byte("etag: \"a\"\r\nx-secret: b\r\n")
	for flags, want := range map[store.Meta]bool{{}: false, {Flags: caching.FlagTag}: false, {Flags: caching.FlagNeverIndexed}: true, {Flags: caching.FlagNeverIndexed | caching.FlagTag}: true} {
		m := flags
		m.Status, m.Fields = 200, uint32(len(fields))
		fresh := &race.Response{Response: protocol.Response{Status: 304, Headers: []protocol.Header{{Name: []byte("x-a"), Value: []byte("1")}}}}
		for name, res := range map[string]*race.Response{
			"a hit":     f.response(&exchange.Exchange{}, &m, fields, []byte("body"), nil),
			"validated": f.merge(&m, append(fields[:len(fields):len(fields)], "body"...), nil, fresh),
		} {
			res.Own()
			for _, h := range res.Headers {
				if expected := want && string(h.Name) != "x-a"; h.NeverIndexed != expected {
					t.Errorf("%s with flags %b: %s may not be indexed: %t", name, m.Flags, h.Name, h.NeverIndexed)
				}
			}
			if len(res.Headers) < 2 || res.Status != 200 || string(res.Body) != "body" {
				t.Errorf("%s: %+v", name, res.Response)
			}
		}
	}
}
