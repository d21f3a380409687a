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

// holdSize is the length of the responses that holders don't read. holdKinds are where these come from, and
// the first part of their paths.
const holdSize = 300_000

var holdKinds = []string{"forwarded", "cached", "revalidated", "collapsed", "respond", "mirrored", "fallback"}

// holdCache is what the caches of the attacked sidecar may take beside limits.buffered.
const holdCache = 3 * 4 << 20

// holdConfig are the routes and services of the kinds, and a listener of Dubbo.
func holdConfig(t *testing.T, calls string) (routes, services, listeners string) {
	app := httptest.NewServer(http.HandlerFunc(serveHeld))
	t.Cleanup(app.Close)
	body := bytes.Repeat([]byte("r"), 60_000)
	routes = fmt.Sprintf(`
  - {match: {path: /forwarded}, service: held}
  - {match: {path: /cached}, service: held, cache: {ttl: 1m, bytes: 4MiB}}
  - {match: {path: /revalidated}, service: held, cache: {ttl: 1m, bytes: 4MiB}}
  - {match: {path: /collapsed}, service: held, collapse: true, cache: {ttl: 0s, bytes: 4MiB}}
  - {match: {path: /respond}, respond: {body: %[1]s}}
  - {match: {path: /mirrored}, service: held, mirror: {service: held}}
  - {match: {path: /fallback}, service: held, fallback: {respond: {body: %[1]s}}}`, body)
	services = fmt.Sprintf(`
  held: {discover: static, endpoints: [%q], protocol: http, timeout: 20s, connect_timeout: 15s, outlier: {consecutive: 0}}
  calls: {discover: static, endpoints: [%q], protocol: dubbo, timeout: 20s, connect_timeout: 15s}`, app.Listener.Addr(), harness.ServeTCP(t, serveHeldCalls))
	return routes, services, fmt.Sprintf("{name: calls, address: %q, protocol: dubbo, service: calls}", calls)
}

// serveHeld is the application of the kinds.
func serveHeld(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	switch kind := bytes.SplitN([]byte(r.URL.Path), []byte("/"), 3)[1]; string(kind) {
	case "revalidated":
		h.Set("Cache-Control", "no-cache")
		h.Set("ETag", `"1"`)
		if r.Header.Get("If-None-Match") != "" {
			w.WriteHeader(304)
			return
		}
	case "collapsed":
		time.Sleep(100 * time.Millisecond) // a slow application: other requests join meanwhile
	case "fallback":
		w.WriteHeader(500)
		return
	}
	h.Set("Content-Length", fmt.Sprint(holdSize))
	_, _ = w.Write(make([]byte, holdSize))
}

// serveHeldCalls is a Dubbo provider with long responses.
func serveHeldCalls(c net.Conn) {
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
					Serialization: frames[i].Serialization, Status: dubbo.StatusOK, ID: frames[i].ID, Body: make([]byte, holdSize),
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
	run  func(ctx context.Context, m *attackMesh) // returns when the connection has ended, or ctx
}

// crowdHolder is a connection of a crowd.
func crowdHolder(name string, c crowd, addr func(*attackMesh) string) holder {
	c.size = 1
	return holder{name, func(ctx context.Context, m *attackMesh) { c.connection(ctx, addr(m)) }}
}

func httpAddr(m *attackMesh) string  { return m.http }
func callsAddr(m *attackMesh) string { return m.calls }
func linkAddr(m *attackMesh) string  { return m.link }

// holders are all ways to hold memory: a reader that never reads and a request that never ends, for each
// kind of response and protocol.
func holders() (all []holder) {
	for _, kind := range holdKinds {
		path := func(i int) string { return fmt.Sprintf("/%s/%d", kind, i%4) }
		var gets []byte
		for i := range 12 {
			gets = fmt.Appendf(gets, "GET %s HTTP/1.1\r\nHost: a\r\n\r\n", path(i))
		}
		all = append(all,
			crowdHolder("HTTP/1.1 unread "+kind, crowd{first: gets, deaf: true, pause: 100 * time.Millisecond}, httpAddr),
			crowdHolder("HTTP/1.1 endless "+kind, crowd{first: postOf(path(0), attackMessage, attackMessage-1),
				pause: 100 * time.Millisecond}, httpAddr),
			h2Holder("HTTP/2 unread "+kind, func(id uint32) []byte { return h2.Get(id, path(int(id/2))) }),
			h2Holder("HTTP/2 endless "+kind, func(id uint32) []byte {
				return append(h2.Post(id, path(0)), h2.Data(id, 0, make([]byte, 100))...)
			}),
		)
	}
	var calls []byte
	for i := range 100 {
		f := &dubbo.Frame{Request: true, TwoWay: true, Serialization: dubbo.Hessian2, ID: int64(i), Body: harness.HessianCall("long", "x")}
		calls = dubbo.AppendFrame(calls, f)
	}
	endless := dubbo.AppendFrame(nil, &dubbo.Frame{Request: true, TwoWay: true, Serialization: dubbo.Hessian2, Body: make([]byte, attackMessage/2)})
	return append(all,
		crowdHolder("Dubbo unread", crowd{first: calls, deaf: true, pause: 100 * time.Millisecond}, callsAddr),
		crowdHolder("Dubbo endless", crowd{first: endless[:len(endless)-1], pause: 100 * time.Millisecond}, callsAddr),
		crowdHolder("HTTP/1.1 endless head", crowd{first: []byte(unfinishedHead + strings.Repeat("x", attackHeader-1000)),
			pause: 100 * time.Millisecond}, httpAddr),
		h2Holder("HTTP/2 endless head", func(id uint32) []byte {
			return h2.Heads(id, 0, h2Refer(id == 1, h2Long, "a", h2.RequestFields("POST", "/forwarded/0")...))
		}),
		holder{"link unread", func(ctx context.Context, m *attackMesh) { withholdCreditOnce(ctx, m.link) }},
		crowdHolder("link endless", crowd{first: slices.Concat(hello, linkHalves(15)), pause: 100 * time.Millisecond},
			linkAddr),
		crowdHolder("link parked", crowd{first: slices.Concat(linkPrefaceWith(roleDialer, linkWindow, link.FeatureStreams),
			linkFrames(4, func(i int) []byte { return linkFrame(linkRequest, i, linkHead("/bytes?size=2000000")) })),
			pause: 100 * time.Millisecond}, linkAddr),
	)
}

// h2Holder opens as many streams as the sidecar takes, and no window for their responses.
func h2Holder(name string, request func(id uint32) []byte) holder {
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
		for send(250); pauseFor(ctx, 100*time.Millisecond) && !p.Over(); {
			send(5)
		}
		return nil
	}}
	return holder{name, func(ctx context.Context, m *attackMesh) {
		a := h2Attack{}
		_ = a.connection(ctx, m.http, &way)
	}}
}

// TestHolders holds memory in all these ways at once, on so many connections, beside a well-behaved load.
func TestHolders(t *testing.T) {
	m := newAttackMesh(t, attackBuffered, attackConnections, holdConfig)
	m.memory += holdCache
	before := m.levels()
	stop := loadHTTP2(t, m.http, 2, 50) // little: with so many connections a share is small
	defer stop()
	for i := range before {
		before[i].Descriptors++
	}
	m.attack(t, &attack{name: "holders", run: holdAll(holders(), 300)}, m.consumer, before)
}

// holdAll returns what opens so many connections, each again a while after it has ended.
func holdAll(group []holder, size int) func(ctx context.Context, m *attackMesh) {
	return func(ctx context.Context, m *attackMesh) {
		var all sync.WaitGroup
		for i := range size {
			all.Go(func() {
				for again := true; again; again = pauseFor(ctx, time.Second) {
					group[i%len(group)].run(ctx, m)
				}
			})
		}
		all.Wait()
	}
}
