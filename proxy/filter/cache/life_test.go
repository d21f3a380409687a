package cache_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

const minute = "Cache-Control: max-age=60\r\n"

// expect sends a request and checks what the client gets.
func (m *origin) expect(want, path string, headers ...string) {
	m.T.Helper()
	if _, got := m.ask(path, headers...); got != want {
		m.T.Errorf("%s: got %q, want %q", path, got, want)
	}
}

// TestStaleOnFailures: a stored response takes the place of failures, also if the service is not asked.
func TestStaleOnFailures(t *testing.T) {
	for _, c := range []struct {
		name, service string
		fail          func(m *origin)
	}{
		{"reset", "retry: {on: []}", func(m *origin) { m.Apps[0].ResetAll = true }},
		{"no endpoint", "", func(m *origin) { m.Consumer.Update("compute"); m.W.Run(time.Millisecond) }},
		{"deadline", "timeout: 1s", func(m *origin) { m.Apps[0].Delay = func() time.Duration { return time.Minute } }},
		{"breaker", "breaker: {consecutive: 1, open: 10m}", func(m *origin) {
			m.send(method(m.Get("/", "x-status: 503").Same(), "POST"))
		}},
	} {
		m := newOrigin(t, proxytest.MeshOptions{Service: c.service}, "cache: {}")
		m.headers = "Cache-Control: max-age=1, stale-while-revalidate=0, stale-if-error=20\r\n"
		m.expect("200 body 1: fwd=miss; stored", "/")
		m.W.Run(3 * time.Second)
		c.fail(m)
		for range 2 {
			if _, got := m.ask("/"); !strings.HasPrefix(got, "200 body 1 age ") || !strings.HasSuffix(got, ": hit; detail=stale") {
				t.Errorf("%s: got %q", c.name, got)
			}
		}
		together := []*proxytest.Call{m.Get("/").Same(), m.Get("/").Same()}
		m.Do(together[0])
		m.Do(together[1])
		m.OK(together...)
		m.W.Run(20 * time.Second)
		if k, _ := m.ask("/"); k.Code == "" {
			t.Errorf("%s: status %d at the end", c.name, k.Status)
		}
		if n := m.counts(); n.CacheStale != 4 || n.CacheRefreshed != 0 {
			t.Errorf("%s: counted %+v", c.name, n)
		}
		m.Settled()
	}
}

// TestHitsAreNotAdmitted: a response from the cache takes no place and no token of the service.
func TestHitsAreNotAdmitted(t *testing.T) {
	m := newOrigin(t, proxytest.MeshOptions{Service: "rate_limit: {rate: 1, burst: 1}"}, "cache: {}")
	m.headers = minute
	m.expect("200 body 1: fwd=miss; stored", "/")
	for range 10 {
		m.expect("200 body 1 age 0: hit", "/")
	}
	s := m.Consumer.Stats("compute")
	if s.Requests != 11 || s.Outcomes[0] != 11 || s.CacheHits != 10 || s.CacheMisses != 1 || !s.Caches {
		t.Errorf("counted %+v", s)
	}
}

// TestRefreshAhead: hits at the end of a lifetime refresh what is in use, each key at another time. No
// client waits for it.
func TestRefreshAhead(t *testing.T) {
	m := newOrigin(t, proxytest.MeshOptions{}, "cache: {ttl: 0s, stale: 0s}")
	m.headers = "Cache-Control: max-age=100\r\n"
	refreshed := map[string]time.Duration{}
	count := m.Apps[0].OnRequest
	m.Apps[0].OnRequest = func(req *protocol.Request) {
		count(req)
		if path := string(req.Path); m.W.Now() > time.Minute && refreshed[path] == 0 {
			refreshed[path] = m.W.Now()
		}
	}
	const keys = 40
	began := m.W.Now()
	for i := range keys {
		m.ask(fmt.Sprint("/", i))
	}
	for m.W.Now() < began+99*time.Second {
		m.W.Run(500 * time.Millisecond)
		for i := range keys {
			if _, got := m.ask(fmt.Sprint("/", i)); !strings.HasSuffix(got, ": hit") {
				t.Fatalf("at %v: %q", m.W.Now(), got)
			}
		}
	}
	early, late := 0, 0
	for _, at := range refreshed {
		switch {
		case at < began+89*time.Second:
			t.Errorf("a refresh after %v", at-began)
		case at < began+95*time.Second:
			early++
		default:
			late++
		}
	}
	if early < keys/5 || late < keys/5 || m.counts().CacheRefreshed != uint64(len(refreshed)) {
		t.Errorf("%d refreshes early, %d late, %d counted", early, late, m.counts().CacheRefreshed)
	}
}

// TestOneRefresh: hits while a response is refreshed do not refresh it again.
func TestOneRefresh(t *testing.T) {
	m := newOrigin(t, proxytest.MeshOptions{}, "cache: {ttl: 1s, stale: 1m}")
	m.expect("200 body 1: fwd=miss; stored", "/")
	m.W.Run(2 * time.Second)
	m.Apps[0].Delay = func() time.Duration { return 5 * time.Second }
	for range 20 {
		m.ask("/")
	}
	if n := m.counts(); n.CacheRefreshed != 1 || n.CacheStale != 20 {
		t.Errorf("counted %+v", n)
	}
}

// TestRefreshFails: a refresh that fails is tried again a second later, however often, and nobody gets the failure.
func TestRefreshFails(t *testing.T) {
	for _, isReset := range []bool{true, false} {
		m := newOrigin(t, proxytest.MeshOptions{Service: "retry: {on: []}"}, "cache: {ttl: 1s, stale: 10m}")
		m.expect("200 body 1: fwd=miss; stored", "/")
		app, fails := m.Apps[0], true
		respond := app.OnRequest
		app.OnRequest = func(req *protocol.Request) {
			if respond(req); fails && !isReset {
				app.Status = 503
			}
		}
		app.ResetAll = isReset
		const failures = 70 // more than may be in flight
		for i := range failures {
			m.W.Run(2 * time.Second)
			m.expect(fmt.Sprintf("200 body 1 age %d: hit; detail=stale", 2*(i+1)), "/")
		}
		m.W.Run(2 * time.Second)
		app.ResetAll, fails = false, false
		m.expect(fmt.Sprintf("200 body 1 age %d: hit; detail=stale", 2*failures+2), "/")
		m.W.Run(100 * time.Millisecond)
		m.expect(fmt.Sprintf("200 body %d age 0: hit", failures+2), "/")
		if n := m.counts().CacheRefreshed; n != failures+1 {
			t.Errorf("reset %t: %d refreshes, want %d", isReset, n, failures+1)
		}
		m.Settled()
	}
}

// TestInvalidation: a request that may have changed something, and has not failed, invalidates its target. Methods have
// capital letters.
func TestInvalidation(t *testing.T) {
	for _, c := range []struct {
		method      string
		status      int
		invalidates bool
	}{
		{"GET", 200, false}, {"HEAD", 200, false}, {"OPTIONS", 200, false}, {"TRACE", 200, false},
		{"POST", 200, true}, {"get", 200, true}, {"PUT", 399, true}, {"PUT", 400, false}, {"DELETE", 503, false},
	} {
		m := newOrigin(t, proxytest.MeshOptions{Service: "retry: {on: []}"}, "cache: {}")
		m.headers = minute
		m.expect("200 body 1: fwd=miss; stored", "/")
		m.send(method(m.Get("/", fmt.Sprint("x-status: ", c.status), "Cache-Control: no-store").Same(), c.method))
		want := "200 body 1 age 0: hit"
		if c.invalidates {
			want = "200 body 3: fwd=miss; stored"
		}
		if _, got := m.ask("/"); got != want {
			t.Errorf("after %s with status %d: got %q, want %q", c.method, c.status, got, want)
		}
	}
}

// TestRefusedAreCounted: a response that is not stored counts, unless it says nothing of what could be.
func TestRefusedAreCounted(t *testing.T) {
	for status, want := range map[int]uint64{200: 1, 303: 1, 305: 1, 304: 0, 500: 0} {
		m := newOrigin(t, proxytest.MeshOptions{Service: "retry: {on: []}"}, "cache: {}")
		m.ask("/", fmt.Sprint("x-status: ", status), "Cache-Control: no-store", `If-None-Match: "a"`)
		if n := m.counts().CacheRefused; n != want {
			t.Errorf("%d: %d refused, want %d", status, n, want)
		}
	}
}

// TestValidatedIsTheNewest: a request validates the response that is stored when the request comes, although another request
// still validates the one before.
func TestValidatedIsTheNewest(t *testing.T) {
	m := newOrigin(t, proxytest.MeshOptions{}, "cache: {stale: 0s}")
	app := m.Apps[0]
	took := []time.Duration{10 * time.Millisecond, time.Second, 10 * time.Second, time.Millisecond}
	app.Delay = func() time.Duration { return took[min(len(m.got), len(took))-1] }
	m.headers = minute + "ETag: \"a\"\r\n"
	count := app.OnRequest
	app.OnRequest = func(req *protocol.Request) {
		if count(req); len(m.got) > 2 {
			app.Status = 304
		}
	}
	both := []*proxytest.Call{m.Get("/").Same(), m.Get("/").Same()}
	for _, c := range both {
		m.Do(c)
		m.W.Run(time.Millisecond)
	}
	m.Finish(both[0])
	early := m.Get("/", "Cache-Control: no-cache").Same()
	m.Do(early)
	m.W.Run(100 * time.Millisecond)
	app.Status = 200 // of the second
	m.Finish(both...)
	m.expect(fmt.Sprintf("200 %s: fwd=stale; fwd-status=304; stored", both[1].Body), "/", "Cache-Control: no-cache")
	if m.Finish(early); !bytes.Equal(early.Body, both[0].Body) || bytes.Equal(both[0].Body, both[1].Body) {
		t.Errorf("a request that came between the responses %q and %q gets %q", both[0].Body, both[1].Body, early.Body)
	}
	m.Settled()
}

// TestNoRefreshInOverload: while the process runs out of a resource, stale responses are used and not refreshed.
func TestNoRefreshInOverload(t *testing.T) {
	m := newOrigin(t, proxytest.MeshOptions{}, "cache: {ttl: 1s, stale: 1m}")
	m.expect("200 body 1: fwd=miss; stored", "/")
	overloaded := true
	m.Consumer.Proc.SetOverload(func() bool { return overloaded })
	m.W.Run(2 * time.Second)
	m.expect("200 body 1 age 2: hit; detail=stale", "/")
	m.W.Run(time.Second)
	m.expect("200 body 1 age 3: hit; detail=stale", "/")
	if n := m.counts().CacheRefreshed; n != 0 {
		t.Errorf("%d refreshes", n)
	}
	overloaded = false
	m.expect("200 body 1 age 3: hit; detail=stale", "/")
	m.W.Run(100 * time.Millisecond)
	m.expect("200 body 2 age 0: hit", "/")
	m.Settled()
}

// TestMemoryOfSplit: the shares of a route have equal parts of its cache.
func TestMemoryOfSplit(t *testing.T) {
	used := func(to string, services ...string) (sum int64) {
		m := newOrigin(t, proxytest.MeshOptions{}, "cache: {}")
		m.Consumer.Reload(proxytest.ReloadYAML(m.Mesh, "{service: "+to+", cache: {ttl: 1h, bytes: 1MiB}}", "a: {%[1]s}, b: {%[1]s}"))
		for _, service := range services {
			m.Consumer.Update(service, m.Endpoint(0))
		}
		m.W.Run(time.Millisecond)
		m.Apps[0].Body = func(*protocol.Request) []byte { return make([]byte, 2000) }
		for i := range 300 {
			m.ask(fmt.Sprint("/", i))
		}
		for _, service := range services {
			n := m.Consumer.Stats(service).CacheBytes
			if sum += n; n == 0 {
				t.Errorf("%s has no cache", service)
			}
		}
		return sum
	}
	one, two := used("a", "a"), used("[{name: a}, {name: b}]", "a", "b")
	if two > one*6/5 || two < one*4/5 {
		t.Errorf("%d bytes of two services, %d of one", two, one)
	}
}

// TestHeadHit: the response to a HEAD says how long that to a GET is.
func TestHeadHit(t *testing.T) {
	m := newOrigin(t, proxytest.MeshOptions{}, "cache: {}")
	m.expect("200 body 1: fwd=miss; stored", "/")
	p := m.DialAndSend(proxytest.Egress, "HEAD / HTTP/1.1\r\nHost: compute\r\n\r\n")
	m.W.Run(100 * time.Millisecond)
	if got := string(p.Heard); !strings.Contains(got, "\r\nCache-Status: remora; hit\r\n") || !strings.Contains(got, "\r\nContent-Length: 6\r\n") || !strings.HasSuffix(got, "\r\n\r\n") {
		t.Errorf("got %q", got)
	}
}

// TestRefreshAsksForAll: the refresh by a HEAD with conditions is a GET with those of the cache.
func TestRefreshAsksForAll(t *testing.T) {
	m := newOrigin(t, proxytest.MeshOptions{}, "cache: {ttl: 1s, stale: 1m}")
	m.etag = `"a"`
	m.expect("200 body 1: fwd=miss; stored", "/")
	m.W.Run(2 * time.Second)
	count := m.Apps[0].OnRequest
	m.Apps[0].OnRequest = func(req *protocol.Request) {
		count(req)
		for _, name := range []string{"cache-control", "pragma"} {
			if v := protocol.Find(req.Headers, name); v != nil {
				t.Errorf("the refresh has %s: %s", name, v)
			}
		}
		if a := protocol.Find(req.Headers, "x-a"); string(a) != "1" {
			t.Errorf("the refresh has x-a: %s", a)
		}
	}
	c := method(m.Get("/", `If-None-Match: "b"`, "Cache-Control: max-age=60", "Pragma: x", "X-A: 1").Same(), "HEAD")
	if got := m.send(c); got != "200 age 2: hit; detail=stale" {
		t.Errorf("got %q", got)
	}
	m.W.Run(100 * time.Millisecond)
	if got := strings.Join(m.got, ", "); got != `GET, GET if-none-match="a"` {
		t.Errorf("the application got %s", got)
	}
	m.expect("200 body 1 age 0: hit", "/")
	m.Settled()
}

// TestLoops: each loop has a cache of its own, and what one invalidates is invalid for all.
func TestLoops(t *testing.T) {
	m := newOrigin(t, proxytest.MeshOptions{Loops: 2}, "cache: {}")
	m.headers = minute
	at := func(loop int, c *proxytest.Call) string {
		c.Same()
		k := m.Dial(fmt.Sprintf("10.0.0.1:%d", 15001+loop))
		k.Calls = []*proxytest.Call{c}
		m.Finish(c)
		return fmt.Sprintf("%s %s", c.Body, protocol.Find(c.Headers, "cache-status"))
	}
	for _, c := range []struct {
		loop   int
		method string
		want   string
	}{
		{0, "GET", "body 1 remora; fwd=miss; stored"},
		{1, "GET", "body 2 remora; fwd=miss; stored"},
		{0, "GET", "body 1 remora; hit"},
		{1, "GET", "body 2 remora; hit"},
		{1, "PUT", "body 3 "},
		{0, "GET", "body 4 remora; fwd=miss; stored"},
		{1, "GET", "body 5 remora; fwd=miss; stored"},
	} {
		if got := at(c.loop, method(m.Get("/"), c.method)); got != c.want {
			t.Errorf("loop %d, %s: got %q, want %q", c.loop, c.method, got, c.want)
		}
		m.W.Run(time.Millisecond)
	}
}

// TestInvalidationByOtherRoutes: a request that takes another route invalidates, too.
func TestInvalidationByOtherRoutes(t *testing.T) {
	m := newOrigin(t, proxytest.MeshOptions{}, "cache: {}")
	m.Consumer.Reload(proxytest.ReloadYAML(m.Mesh, "{match: {method: [GET]}, service: compute, cache: {}}, {service: compute}", "compute: {%s}"))
	m.headers = minute
	m.expect("200 body 1: fwd=miss; stored", "/")
	m.expect("200 body 1 age 0: hit", "/")
	m.W.Run(time.Millisecond)
	m.send(method(m.Get("/").Same(), "PATCH"))
	m.expect("200 body 3: fwd=miss; stored", "/")
}

// TestFailuresOfOtherRoutes: a request of a route without a cache that fails, has changed nothing. It gets its failure.
func TestFailuresOfOtherRoutes(t *testing.T) {
	m := newOrigin(t, proxytest.MeshOptions{}, "cache: {}")
	m.Consumer.Reload(proxytest.ReloadYAML(m.Mesh, "{match: {method: [GET]}, service: compute, cache: {}}, {service: compute}", "compute: {%s, retry: {on: []}}"))
	m.headers = minute
	m.expect("200 body 1: fwd=miss; stored", "/")
	m.W.Run(time.Millisecond)
	m.Apps[0].ResetAll = true
	if c := m.Complete(method(m.Get("/").Same(), "PATCH")); c.Status != 502 || c.Code != "upstream-reset" {
		t.Errorf("status %d %s", c.Status, c.Code)
	}
	m.expect("200 body 1 age 0: hit", "/")
}

// TestBodiesPass: a GET with a body is none for a cache, whatever becomes of it.
func TestBodiesPass(t *testing.T) {
	m := newOrigin(t, proxytest.MeshOptions{Service: "retry: {on: []}"}, "cache: {}")
	m.headers = minute
	withBody := func() *proxytest.Call {
		c := m.Post(10).Same()
		c.Raw = bytes.Replace(c.Raw, []byte("POST /compute"), []byte("GET /"), 1)
		return c
	}
	if got := m.send(withBody()); got != "200 body 1:" {
		t.Errorf("got %q", got)
	}
	m.expect("200 body 2: fwd=miss; stored", "/")
	if got := m.send(withBody()); got != "200 body 3:" {
		t.Errorf("got %q", got)
	}
	m.Apps[0].ResetAll = true
	if c := m.Complete(withBody()); c.Status != 502 {
		t.Errorf("status %d, want that of the failure", c.Status)
	}
	m.expect("200 body 2 age 0: hit", "/")
}

// TestHeadersOfStored: what belongs to one response alone is not stored. A response by which the service validates replaces
// the headers of the stored one, but for those of the body. A 304 has no headers of a body.
func TestHeadersOfStored(t *testing.T) {
	m := newOrigin(t, proxytest.MeshOptions{}, "cache: {stale: 0s}")
	m.etag = `"a"`
	const lasting = "Cache-Control: max-age=5\r\nLast-Modified: Wed, 01 Jan 2025 00:00:00 GMT\r\n"
	m.headers = lasting + "Content-Type: a\r\nContent-Location: /l\r\nContent-Language: en\r\nX-A: 1\r\nX-B: 1\r\nProxy-Authenticate: p\r\nX-Request-Id: r\r\n" +
		"PROXY-AUTHENTICATION-INFO: i\r\nProxy-Authorization: a\r\nProxy-Authorizations: b\r\n"
	check := func(what string, c *proxytest.Call, want string) {
		t.Helper()
		got := ""
		for _, name := range []string{"content-type", "content-location", "content-language", "x-a", "x-b", "etag", "last-modified", "proxy-authenticate", "proxy-authentication-info", "proxy-authorization", "proxy-authorizations", "x-request-id"} {
			if v := protocol.Find(c.Headers, name); v != nil && (name != "x-request-id" || string(v) == "r") {
				got += fmt.Sprintf("%s=%.3s ", name, v)
			}
		}
		if got != want {
			t.Errorf("%s: status %d, headers\n%s, want\n%s", what, c.Status, got, want)
		}
	}
	const ofBody = "content-type=a content-location=/l content-language=en "
	c, _ := m.ask("/")
	check("the first", c, ofBody+`x-a=1 x-b=1 etag="a" last-modified=Wed proxy-authenticate=p proxy-authentication-info=i proxy-authorization=a proxy-authorizations=b x-request-id=r `)
	c, _ = m.ask("/")
	check("a hit", c, ofBody+`x-a=1 x-b=1 etag="a" last-modified=Wed proxy-authorizations=b `)
	c, _ = m.ask("/", `If-None-Match: "a"`)
	check("a hit of a client that has it", c, `content-location=/l x-a=1 x-b=1 etag="a" proxy-authorizations=b `)
	m.W.Run(6 * time.Second)
	m.headers = lasting + "Content-Type: b\r\nContent-Language: fr\r\nX-A: 2\r\nX-C: 2\r\n"
	for _, what := range []string{"validated", "a hit after that"} {
		c, _ = m.ask("/")
		check(what, c, `content-type=a content-location=/l content-language=fr x-a=2 x-b=1 etag="a" last-modified=Wed proxy-authorizations=b `)
	}
	m.etag = ""
	m.headers = lasting + "Content-Type: a\r\n"
	m.ask("/dated")
	c, _ = m.ask("/dated", "If-Modified-Since: Wed, 01 Jan 2025 00:00:00 GMT")
	check("without a tag", c, "last-modified=Wed ")
	if c.Status != 304 || len(c.Body) > 0 {
		t.Errorf("status %d, %d bytes", c.Status, len(c.Body))
	}
}

// TestConditionsOfFallback: a request that asked for a newer response than the stored one, and failed, goes to a fallback
// with the conditions of its client.
func TestConditionsOfFallback(t *testing.T) {
	m := newOrigin(t, proxytest.MeshOptions{}, "cache: {}")
	m.Consumer.Reload(proxytest.ReloadYAML(m.Mesh, "{service: compute, retry: {on: []}, cache: {stale: 0s}, fallback: {on: [5xx, reset], service: other}}",
		"compute: {%[1]s}, other: {%[1]s}"))
	for _, service := range []string{"compute", "other"} {
		m.Consumer.Update(service, m.Endpoint(0))
	}
	m.W.Run(time.Millisecond)
	m.etag, m.headers = `"a"`, "Cache-Control: max-age=1, must-revalidate\r\n"
	m.expect("200 body 1: fwd=miss; stored", "/")
	m.W.Run(2 * time.Second)
	m.ask("/", "X-Status: 503", `If-None-Match: "b"`)
	want := []string{"GET", `GET if-none-match="a"`, `GET if-none-match="b"`}
	if !slices.Equal(m.got, want) {
		t.Errorf("the applications got %q, want %q", m.got, want)
	}
	m.got = nil
	reset := true
	count := m.Apps[0].OnRequest
	m.Apps[0].OnRequest = func(req *protocol.Request) {
		count(req)
		m.Apps[0].ResetAll, reset = reset, false
	}
	m.ask("/", `If-None-Match: "b"`)
	if !slices.Equal(m.got, want[1:]) {
		t.Errorf("after a reset the applications got %q, want %q", m.got, want[1:])
	}
	m.Settled()
}

// TestResponseOfTheTimeBefore: a response that was asked for before an invalidation is not stored, also if the route
// allows more time than its service.
func TestResponseOfTheTimeBefore(t *testing.T) {
	for _, c := range []struct {
		service, route string
		delay          time.Duration
	}{
		{"", "cache: {}", time.Second},
		{"timeout: 1s", "cache: {}, timeout: 10s", 5 * time.Second},
	} {
		m := newOrigin(t, proxytest.MeshOptions{Service: c.service}, c.route)
		m.headers = minute
		m.Apps[0].Delay = func() time.Duration { return c.delay }
		slow := m.Get("/").Same()
		m.Do(slow)
		m.W.Run(c.delay * 3 / 5)
		m.Apps[0].Delay = func() time.Duration { return time.Millisecond }
		m.send(method(m.Get("/").Same(), "POST"))
		m.Finish(slow)
		m.expect("200 body 3: fwd=miss; stored", "/")
	}
}

// TestReload: a route that changes begins with an empty cache, and the memory of the old one is no
// longer counted, nor used for a response that comes later. Another keeps its own.
func TestReload(t *testing.T) {
	m := newOrigin(t, proxytest.MeshOptions{}, "cache: {}")
	routes := "{match: {path: /a}, service: compute, cache: {ttl: %s}}, {match: {path: /b}, service: compute, cache: {}}"
	load := func(ttl string) {
		m.Consumer.Reload(proxytest.ReloadYAML(m.Mesh, fmt.Sprintf(routes, ttl), "compute: {%s}"))
	}
	load("1h")
	m.headers = minute
	m.expect("200 body 1: fwd=miss; stored", "/a")
	m.expect("200 body 2: fwd=miss; stored", "/b")
	both := m.counts().CacheBytes
	load("2h")
	if half := m.counts().CacheBytes; half*2 != both || both == 0 {
		t.Errorf("%d bytes of two caches, %d of one", both, half)
	}
	m.expect("200 body 3: fwd=miss; stored", "/a")
	m.expect("200 body 2 age 0: hit", "/b")
	if n := m.counts().CacheBytes; n != both {
		t.Errorf("%d bytes, want %d", n, both)
	}
	m.Apps[0].Delay = func() time.Duration { return time.Second }
	slow := m.Get("/a/slow").Same()
	m.Do(slow)
	m.W.Run(500 * time.Millisecond)
	load("3h")
	m.Finish(slow)
	if said := string(protocol.Find(slow.Headers, "cache-status")); said != "remora; fwd=miss" || m.counts().CacheBytes*2 != both {
		t.Errorf("a route that is gone says %q; %d bytes, want half of %d", said, m.counts().CacheBytes, both)
	}
}

// TestStreamsAreNotStored: neither are responses with trailers, nor what is larger than a quarter of
// the cache.
func TestStreamsAreNotStored(t *testing.T) {
	m := newOrigin(t, proxytest.MeshOptions{}, "cache: {bytes: 1MiB}")
	m.headers = minute
	m.Apps[0].Trailers = "x-trailer: 1\r\n"
	m.expect("200 body 1: fwd=miss", "/")
	m.expect("200 body 2: fwd=miss", "/")
	m.Apps[0].Trailers = ""
	m.Apps[0].Body = func(*protocol.Request) []byte { return make([]byte, 400<<10) }
	for range 2 {
		if c, _ := m.ask("/large"); string(protocol.Find(c.Headers, "cache-status")) != "remora; fwd=miss" {
			t.Errorf("a large response: %q", c.Headers)
		}
	}
	m.Apps[0].Body = func(*protocol.Request) []byte { return make([]byte, 100<<10) }
	for i, want := range []string{"remora; fwd=miss; stored", "remora; hit"} {
		if c, _ := m.ask("/small"); string(protocol.Find(c.Headers, "cache-status")) != want || len(c.Body) != 100<<10 {
			t.Errorf("response %d: %d bytes, %q", i, len(c.Body), c.Headers)
		}
	}
	if n := m.counts().CacheRefused; n != 4 {
		t.Errorf("%d refused, want those that are not stored", n)
	}
}

// TestMemory: ten minutes of random keys stay within the bytes of the setting.
func TestMemory(t *testing.T) {
	const bound = 1 << 20
	m := newOrigin(t, proxytest.MeshOptions{Loops: 2}, "cache: {ttl: 1h, bytes: 1MiB}")
	rnd := m.W.Rand()
	m.Apps[0].Body = func(*protocol.Request) []byte { return make([]byte, rnd.IntN(8000)) }
	for m.W.Now() < 10*time.Minute {
		var calls []*proxytest.Call
		for i := range 20 {
			c := m.Get(fmt.Sprint("/", rnd.IntN(3000)), "Accept: "+fmt.Sprint(rnd.IntN(2))).Same()
			k := m.Dial(fmt.Sprintf("10.0.0.1:%d", 15001+i%2))
			k.Calls = []*proxytest.Call{c}
			calls = append(calls, c)
		}
		m.headers = ""
		if rnd.IntN(2) == 0 {
			m.headers = "Vary: Accept\r\n"
		}
		m.Finish(calls...)
		if n := m.counts().CacheBytes; n > bound {
			t.Fatalf("%d bytes", n)
		}
		m.W.Run(time.Duration(rnd.IntN(3000)) * time.Millisecond)
	}
	m.Settled()
	if n := m.counts(); n.CacheBytes < bound/2 || n.CacheEvicted == 0 || n.CacheEvicted > 2*n.CacheMisses || n.CacheHits == 0 {
		t.Errorf("counted %+v", n)
	}
}

// TestEditedResponses: the route changes the headers of each response that it sends.
func TestEditedResponses(t *testing.T) {
	m := newOrigin(t, proxytest.MeshOptions{}, "cache: {}, response_headers: {set: {x-id: '{request_id}'}, remove: [x-b]}")
	m.headers = minute + "X-B: 1\r\nX-Request-Id: of-another\r\n"
	for i, want := range []string{"a", "b"} {
		c, _ := m.ask("/", "X-Request-Id: "+want)
		if got := string(protocol.Find(c.Headers, "x-id")); got != want || protocol.Find(c.Headers, "x-b") != nil {
			t.Errorf("response %d: %q", i, c.Headers)
		}
		if id := string(protocol.Find(c.Headers, "x-request-id")); i == 1 && id != want {
			t.Errorf("the response has the id %q", id)
		}
	}
}

// TestAccessLog: lines say what the cache did.
func TestAccessLog(t *testing.T) {
	m := newOrigin(t, proxytest.MeshOptions{Limits: proxytest.LogAll}, "cache: {}")
	m.headers = minute
	m.ask("/")
	m.ask("/")
	m.ask("/", "Range: bytes=0-1")
	var said []string
	for _, l := range m.Consumer.AccessLines() {
		said = append(said, l.Cache)
	}
	if got := strings.Join(said, " "); got != "miss hit bypass" {
		t.Errorf("the lines say %s", got)
	}
}

// TestRefreshBeginsNoSession: the cookie of a new session belongs to a client. A refresh has none, so
// that its response is stored.
func TestRefreshBeginsNoSession(t *testing.T) {
	m := newOrigin(t, proxytest.MeshOptions{Service: "lb: {policy: consistent_hash, hash: {cookie: sid, ttl: 1h}}"}, "cache: {ttl: 1s, stale: 1m}")
	m.expect("200 body 1: fwd=miss; stored", "/")
	m.W.Run(2 * time.Second)
	m.expect("200 body 1 age 2: hit; detail=stale", "/")
	m.W.Run(100 * time.Millisecond)
	m.expect("200 body 2 age 0: hit", "/")
	m.Settled()
}

// TestStickyCookie: a stored response in place of a bad one names no endpoint. A response that the endpoint has validated
// does.
func TestStickyCookie(t *testing.T) {
	for _, c := range []struct {
		says, want string
		named      bool
	}{
		{"x-status: 503", "200 body 1 age 3: hit; detail=stale", false},
		{"a: b", "200 body 1: fwd=stale; fwd-status=304; stored", true},
	} {
		m := newOrigin(t, proxytest.MeshOptions{Service: `lb: {sticky: {cookie: srv, secret: "0123456789abcdef"}}`}, "cache: {}")
		m.headers, m.etag = "Cache-Control: max-age=1, stale-while-revalidate=0, stale-if-error=20\r\n", `"a"`
		m.expect("200 body 1: fwd=miss; stored", "/")
		m.W.Run(3 * time.Second)
		k, got := m.ask("/", c.says)
		if cookie := protocol.Find(k.Headers, "set-cookie"); got != c.want || (cookie != nil) != c.named {
			t.Errorf("%s: got %q with the cookie %q, want %q, with a cookie: %v", c.says, got, cookie, c.want, c.named)
		}
		m.Settled()
	}
}

// TestVaryChanges: a response that varied by one header is not the one for a request that has the same
// value in another, by which a later response varies.
func TestVaryChanges(t *testing.T) {
	m := newOrigin(t, proxytest.MeshOptions{}, "cache: {}")
	m.headers = minute + "Vary: X-Tier\r\n"
	m.expect("200 body 1: fwd=miss; stored", "/", "X-Tier: 1", "X-Shape: 2")
	m.headers = minute + "Vary: X-Shape\r\n"
	m.expect("200 body 2: fwd=miss; stored", "/", "X-Tier: 2", "X-Shape: 2")
	m.expect("200 body 3: fwd=miss; stored", "/", "X-Tier: 2", "X-Shape: 1")
}

// TestRefreshOfReplaced: the response by which the service validates one that was replaced meanwhile
// changes nothing of the other.
func TestRefreshOfReplaced(t *testing.T) {
	m := newOrigin(t, proxytest.MeshOptions{}, "cache: {ttl: 1s, stale: 1m}")
	m.etag = `"a"`
	m.expect("200 body 1: fwd=miss; stored", "/")
	m.W.Run(2 * time.Second)
	m.Apps[0].Delay = func() time.Duration { return 500 * time.Millisecond }
	m.expect("200 body 1 age 2: hit; detail=stale", "/") // the refresh gets 304
	m.W.Run(100 * time.Millisecond)
	m.Apps[0].Delay = func() time.Duration { return time.Millisecond }
	m.etag = `"b"`
	m.expect("200 body 3: fwd=miss; stored", "/", "Cache-Control: no-cache")
	m.Apps[0].Status, m.Apps[0].ExtraHeaders = 304, "ETag: \"a\"\r\n" // as it was
	m.W.Run(600 * time.Millisecond)
	c, got := m.ask("/")
	if tag := protocol.Find(c.Headers, "etag"); got != "200 body 3 age 0: hit" || string(tag) != `"b"` {
		t.Errorf("got %q with ETag %s", got, tag)
	}
}

// TestOneCopy: requests that validate one response at once share its copy.
func TestOneCopy(t *testing.T) {
	const size = 100 << 10
	m := newOrigin(t, proxytest.MeshOptions{}, "cache: {}")
	m.etag, m.headers = `"a"`, "Cache-Control: no-cache\r\n"
	body := m.Apps[0].Body
	m.Apps[0].Body = func(req *protocol.Request) []byte { return append(body(req), make([]byte, size)...) }
	m.ask("/")
	m.Apps[0].Body = body
	m.Apps[0].Delay = func() time.Duration { return time.Second }
	var calls []*proxytest.Call
	for range 10 {
		calls = append(calls, m.Get("/").Same())
		m.Do(calls[len(calls)-1])
	}
	m.W.Run(500 * time.Millisecond)
	if n := m.Consumer.Proc.Held(); n < size || n > 3*size {
		t.Errorf("10 requests that validate %d bytes hold %d bytes", size, n)
	}
	m.OK(calls...)
	m.Settled()
}

// TestStaleIsLogged: the access log says that a stored response has taken the place of a failure.
func TestStaleIsLogged(t *testing.T) {
	m := newOrigin(t, proxytest.MeshOptions{Service: "retry: {on: []}", Limits: proxytest.LogAll}, "cache: {}")
	m.headers = "Cache-Control: max-age=1, stale-while-revalidate=0, stale-if-error=20\r\n"
	m.ask("/")
	m.W.Run(3 * time.Second)
	m.Apps[0].ResetAll = true
	m.ask("/")
	var said []string
	for _, l := range m.Consumer.AccessLines() {
		said = append(said, l.Cache)
	}
	if got := strings.Join(said, " "); got != "miss stale" {
		t.Errorf("the lines say %s", got)
	}
}
