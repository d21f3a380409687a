package attacks

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/e2e/harness/h2"
	"github.com/remora-proxy/remora/protocol/dubbo"
	"github.com/remora-proxy/remora/protocol/link"
)

// holdKinds are where the responses come from that holders don't read, and the first part of their paths.
var holdKinds = []string{"forwarded", "cached", "revalidated", "collapsed", "respond", "mirrored", "fallback"}

// holding is a mesh for holders.
type holding struct {
	name   string
	limits attackLimits
	long   []byte // the body of most responses that are held
}

var (
	smallHolding   = holding{"small limits", usualLimits, make([]byte, 300_000)}
	defaultHolding = holding{"default limits", attackLimits{message: 4 << 20, buffered: 256 << 20, connections: 1 << 14}, make([]byte, 3_500_000)}
)

// holdCache is what the caches of the attacked sidecar may take beside limits.buffered.
const holdCache = 3 * 16 << 20

// start starts the sidecars, and two applications.
func (h *holding) start(t *testing.T) *attackMesh {
	m := newAttackMesh(t, h.limits, h.config)
	m.memory += holdCache
	return m
}

// config returns the routes and services of the kinds, and a Dubbo listener.
func (h *holding) config(t *testing.T, calls string) (routes, services, listeners string) {
	app := httptest.NewServer(http.HandlerFunc(h.serve))
	t.Cleanup(app.Close)
	body := bytes.Repeat([]byte("r"), 60_000)
	routes = fmt.Sprintf(`
  - {match: {path: /forwarded}, service: held}
  - {match: {path: /cached}, service: held, cache: {ttl: 1m, bytes: 16MiB}}
  - {match: {path: /revalidated}, service: held, cache: {ttl: 1m, bytes: 16MiB}}
  - {match: {path: /collapsed}, service: held, collapse: true, cache: {ttl: 0s, bytes: 16MiB}}
  - {match: {path: /respond}, respond: {body: %[1]s}}
  - {match: {path: /mirrored}, service: held, mirror: {service: held}}
  - {match: {path: /fallback}, service: held, fallback: {respond: {body: %[1]s}}}`, body)
	services = fmt.Sprintf(`
  held: {discover: static, endpoints: [%q], protocol: http, timeout: 50s, connect_timeout: 15s, outlier: {consecutive: 0}}
  calls: {discover: static, endpoints: [%q], protocol: dubbo, timeout: 20s, connect_timeout: 15s}`, app.Listener.Addr(), harness.ServeTCP(t, h.serveCalls))
	return routes, services, fmt.Sprintf("{name: calls, address: %q, protocol: dubbo, service: calls}", calls)
}

// serve is the application of the kinds.
func (h *holding) serve(w http.ResponseWriter, r *http.Request) {
	fields, body := w.Header(), h.long
	kind, rest, _ := strings.Cut(r.URL.Path[1:], "/")
	if rest == "short" {
		body = body[:200]
	}
	switch kind {
	case "revalidated":
		fields.Set("Cache-Control", "no-cache")
		fields.Set("ETag", `"1"`)
		if r.Header.Get("If-None-Match") != "" {
			w.WriteHeader(304)
			return
		}
	case "collapsed":
		time.Sleep(100 * time.Millisecond) // a slow application: other requests join meanwhile
	case "fallback":
		if rest != "short" {
			w.WriteHeader(500)
			return
		}
	}
	fields.Set("Content-Length", fmt.Sprint(len(body)))
	_, _ = w.Write(body)
}

// serveCalls is a Dubbo provider with long responses.
func (h *holding) serveCalls(c net.Conn) {
	var in []byte
	for {
		frames, err := harness.ReadFrames(c, &in)
		if err != nil {
			return
		}
		for i := range frames {
			out := dubbo.AppendHeartbeatAnswer(nil, &frames[i])
			if !frames[i].Event {
				out = dubbo.AppendFrame(nil, &dubbo.Frame{
					Serialization: frames[i].Serialization, Status: dubbo.StatusOK, ID: frames[i].ID, Body: h.long,
				})
			}
			if _, err := c.Write(out); err != nil {
				return
			}
		}
	}
}

// holder is what one connection does to hold memory.
type holder struct {
	name string
	many bool // it has many requests at a time
	// run returns when the connection has ended, or ctx. After each pause it sends a little more, if it does.
	run func(ctx context.Context, m *attackMesh, pause time.Duration)
}

// crowdHolder is a connection of a crowd.
func crowdHolder(name string, many bool, c crowd, addr func(*attackMesh) string) holder {
	c.size = 1
	return holder{name, many, func(ctx context.Context, m *attackMesh, pause time.Duration) {
		c := c
		c.pause = pause
		c.connection(ctx, addr(m))
	}}
}

func httpAddr(m *attackMesh) string  { return m.http }
func callsAddr(m *attackMesh) string { return m.calls }
func linkAddr(m *attackMesh) string  { return m.link }

// ways are all ways to hold memory: a reader that never reads and a request that never ends, for each kind of
// response and protocol.
func (h *holding) ways() (all []holder) {
	long := h.limits.message
	for _, kind := range holdKinds {
		path := func(i int) string { return fmt.Sprintf("/%s/%d", kind, i%4) }
		all = append(all,
			crowdHolder("HTTP/1.1 unread "+kind, false, crowd{first: pipeline(path), deaf: true}, httpAddr),
			crowdHolder("HTTP/1.1 endless "+kind, false, crowd{first: postOf(path(0), long, long-1)}, httpAddr),
			h2Holder("HTTP/2 unread "+kind, h2Streams, func(id uint32) []byte { return h2.Get(id, path(int(id/2))) }),
			h2Holder("HTTP/2 endless "+kind, h2Streams, func(id uint32) []byte {
				return append(h2.Post(id, path(0)), h2.Data(id, 0, make([]byte, 100))...)
			}),
		)
	}
	stream := func(int) string { return fmt.Sprintf("/bytes?size=%d", long+long/4) }
	var calls []byte
	for i := range 100 {
		f := &dubbo.Frame{Request: true, TwoWay: true, Serialization: dubbo.Hessian2, ID: int64(i), Body: harness.HessianCall("long", "x")}
		calls = dubbo.AppendFrame(calls, f)
	}
	endless := dubbo.AppendFrame(nil, &dubbo.Frame{Request: true, TwoWay: true, Serialization: dubbo.Hessian2, Body: make([]byte, long/2)})
	parked := slices.Concat(linkPrefaceWith(roleDialer, linkWindow, link.FeatureStreams),
		linkFrames(4, func(i int) []byte { return linkFrame(linkRequest, i, linkHead(stream(0))) }))
	return append(all,
		crowdHolder("HTTP/1.1 unread stream", false, crowd{first: pipeline(stream), deaf: true}, httpAddr),
		h2Holder("HTTP/2 unread stream", attackStreams/10, func(id uint32) []byte { return h2.Get(id, stream(0)) }),
		crowdHolder("HTTP/1.1 endless head", false, crowd{first: []byte(unfinishedHead + strings.Repeat("x", attackHeader-1000))}, httpAddr),
		h2Holder("HTTP/2 endless head", h2Streams, func(id uint32) []byte {
			return h2.Heads(id, 0, h2Refer(id == 1, h2Long, "a", h2.RequestFields("POST", "/forwarded/0")...))
		}),
		crowdHolder("Dubbo unread", true, crowd{first: calls, deaf: true}, callsAddr),
		crowdHolder("Dubbo endless", true, crowd{first: endless[:len(endless)-1]}, callsAddr),
		holder{"link unread", true, func(ctx context.Context, m *attackMesh, _ time.Duration) { withholdCreditOnce(ctx, m.link) }},
		crowdHolder("link endless", true, crowd{first: slices.Concat(hello, linkHalves(15))}, linkAddr),
		crowdHolder("link parked", true, crowd{first: parked}, linkAddr),
	)
}

// pipeline is many requests in a row.
func pipeline(path func(i int) string) (all []byte) {
	for i := range 12 {
		all = fmt.Appendf(all, "GET %s HTTP/1.1\r\nHost: a\r\n\r\n", path(i))
	}
	return all
}

// h2Streams is how many streams the sidecar takes of a connection.
const h2Streams = 250

// h2Holder opens so many streams, later a few more, and no window for their responses.
func h2Holder(name string, streams int, request func(id uint32) []byte) holder {
	return holder{name, true, func(ctx context.Context, m *attackMesh, pause time.Duration) {
		way := h2Way{name, func(ctx context.Context, p *h2.Peer) error {
			p.Send(h2.Hello(http2.Setting{ID: http2.SettingInitialWindowSize}), h2.SettingsAck())
			id := uint32(1)
			send := func(count int) {
				var b []byte
				for range count {
					b = append(b, request(id)...)
					id += 2
				}
				p.Send(b)
			}
			for send(streams); pauseFor(ctx, pause) && !p.Over(); {
				send(5)
			}
			return nil
		}}
		a := h2Attack{}
		_ = a.connection(ctx, m.http, &way)
	}}
}

// TestHolders holds memory in all these ways at once, on so many connections, beside a well-behaved load.
func TestHolders(t *testing.T) {
	m := smallHolding.start(t)
	hold(t, m, m.levels(), "all ways", smallHolding.ways(), 300)
}

// TestHoldersAlone holds memory in each way alone, on few and many connections, with small and large limits.
// The load wants short responses of all kinds. It takes half an hour.
func TestHoldersAlone(t *testing.T) {
	if attackTime(t) < time.Second {
		t.Skip("REMORA_ATTACK is less than 1s")
	}
	for _, h := range []holding{smallHolding, defaultHolding} {
		t.Run(h.name, func(t *testing.T) {
			m := h.start(t)
			for _, kind := range holdKinds {
				m.wanted = append(m.wanted, "/"+kind+"/short")
			}
			before := m.levels()
			for _, way := range h.ways() {
				for _, size := range []int{1, 20, 600} {
					t.Run(fmt.Sprintf("%s on %d", way.name, size), func(t *testing.T) {
						hold(t, m, before, way.name, []holder{way}, size)
					})
				}
			}
		})
	}
}

// holdReserve is how many of the connections that have many requests may hold memory before the well-behaved
// load must expect 503: each has one request in the reserve of max_pending, an eighth of the default.
const holdReserve = 1024 / 8

// hold holds memory in all ways of the group on so many connections, beside a well-behaved load.
func hold(t *testing.T, m *attackMesh, before []harness.Level, name string, group []holder, size int) {
	a := &attack{name: name, run: holdAll(group, size), mayRefuse: len(group) == 1 && group[0].many && size > holdReserve}
	before = slices.Clone(before)
	if !a.mayRefuse {
		defer loadHTTP2(t, m.http, 1, 50)()
		for i := range before {
			before[i].Descriptors++
		}
	}
	m.attack(t, a, m.consumer, before)
}

// holdAll returns what opens so many connections, each again a while after it has ended. With many connections
// that is long: they hold memory, and are no flood.
func holdAll(group []holder, size int) func(ctx context.Context, m *attackMesh) {
	pause := time.Duration(max(10, size)) * 10 * time.Millisecond
	return func(ctx context.Context, m *attackMesh) {
		var all sync.WaitGroup
		for i := range size {
			all.Go(func() {
				for again := true; again; again = pauseFor(ctx, 10*pause) {
					group[i%len(group)].run(ctx, m, pause)
				}
			})
		}
		all.Wait()
	}
}
