package exchange_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/registry"
)

// sticky is the YAML of a service whose cookie srv names the endpoint.
const sticky = `lb: {slow_start: 0, sticky: {cookie: srv, ttl: 1h, secret: "0123456789abcdef"}}`

// stickyPair returns the pair of the cookie that the client of k got, or "" for none.
func stickyPair(t *testing.T, k *proxytest.Call) string {
	t.Helper()
	pair := ""
	for _, c := range cookiesOf(k) {
		name, rest, _ := strings.Cut(c, ";")
		if rest != " Path=/; Max-Age=3600; HttpOnly; SameSite=Lax" || pair != "" {
			t.Fatalf("got the cookies %q", cookiesOf(k))
		}
		pair = name
	}
	if private := string(protocol.Find(k.Headers, "cache-control")) == "private"; private != (pair != "") {
		t.Errorf("with the cookie %q, private: %v", pair, private)
	}
	return pair
}

// pinned returns an application with a session, as its letter and cookie.
func pinned(m *proxytest.Mesh) (by, pair string) {
	m.T.Helper()
	k := m.Get("/")
	by = app(m, k)
	if pair = stickyPair(m.T, k); pair == "" {
		m.T.Fatal("no cookie")
	}
	return by, pair
}

// TestSticky: a session stays at its application over reloads and while applications come, from every
// loop. Its cookie reaches no application. If the application has gone, the session begins anew.
func TestSticky(t *testing.T) {
	for _, policy := range []string{sticky, strings.Replace(sticky, "lb: {", "lb: {policy: weighted_round_robin, ", 1),
		strings.Replace(sticky, "lb: {", "lb: {policy: consistent_hash, hash: {source: true}, ", 1)} {
		proxytest.EachTopology(t, proxytest.MeshOptions{Loops: 2, Apps: 4, Service: policy}, func(t *testing.T, m *proxytest.Mesh) {
			var all []registry.Endpoint
			for i := range m.Apps {
				all = append(all, m.Endpoint(i))
			}
			m.Consumer.Update("compute", all[:3]...)
			by, pair := pinned(m)
			stays := func(when string) {
				t.Helper()
				for range 6 {
					k := m.Get("/", "cookie: a=b; "+pair+"; c=d")
					if now := app(m, k); now != by || stickyPair(t, k) != "" {
						t.Errorf("%s: %s went to %s, with %q", when, by, now, cookiesOf(k))
					}
				}
			}
			stays("at first")
			seen := m.Apps.CollectHeader("cookie")
			some, none := m.Get("/", "cookie: a=b; "+pair+"; c=d"), m.Get("/", "cookie: "+pair)
			m.Do(some, none)
			m.Finish(some, none)
			if !slices.Equal(*seen, []string{"a=b; c=d", ""}) {
				t.Errorf("the applications saw the cookies %q", *seen)
			}
			m.Consumer.Update("compute", all...)
			stays("with another application")
			m.Consumer.Reload(proxytest.ReloadYAML(m, "{service: compute}", "compute: {%s, timeout: 9s, "+policy+"}"))
			stays("after a reload")
			for i := range m.Apps {
				m.Apps[i].ExtraHeaders = "set-cookie: srv=own\r\n"
			}
			stays("while the applications set the cookie")
			left := slices.Clone(all)
			owner := int(by[0] - 'a')
			m.Consumer.Update("compute", slices.Delete(left, owner, owner+1)...)
			k := m.Get("/", "cookie: "+pair)
			if now := app(m, k); now == by || stickyPair(t, k) == "" || stickyPair(t, k) == pair {
				t.Errorf("without %s the session went to %s, with %q", by, now, cookiesOf(k))
			}
			k = m.Get("/", "cookie: srv="+m.Apps[0].Addr)
			if app(m, k) == "" || stickyPair(t, k) == "" {
				t.Error("an unknown value got no cookie")
			}
			m.Settled()
		})
	}
}

// TestStickyAttempts: the cookie names the application whose response the client got. A pinned request
// waits for its application, and is not hedged. It is retried elsewhere.
func TestStickyAttempts(t *testing.T) {
	o := proxytest.MeshOptions{Service: proxytest.Fields(sticky, proxytest.HedgeOn)}
	proxytest.EachTopology(t, o, func(t *testing.T, m *proxytest.Mesh) {
		m.WarmUp(50)
		by, pair := pinned(m)
		owner := m.Apps[by[0]-'a']
		owner.FrozenUntil = m.W.Now() + 100*time.Millisecond
		k := m.Get("/", "cookie: "+pair)
		if now := app(m, k); now != by || k.Took < 50*time.Millisecond || stickyPair(t, k) != "" {
			t.Errorf("%s is slow: %s served after %v, with %q", by, now, k.Took, cookiesOf(k))
		}
		for _, a := range m.Apps {
			if a != m.Apps[0] {
				a.FrozenUntil = m.W.Now() + 100*time.Millisecond
			}
		}
		var first []*proxytest.Call
		for range 3 {
			first = append(first, m.Get("/"))
			m.Do(first[len(first)-1])
		}
		m.Finish(first...)
		m.W.Run(time.Second)
		if m.Consumer.Stats("compute").HedgesWon == 0 {
			t.Error("no hedge won")
		}
		for _, k := range first {
			if now := app(m, m.Get("/", "cookie: "+stickyPair(t, k))); k.Took < 50*time.Millisecond && now != "a" {
				t.Errorf("a was first, and the cookie names %s", now)
			}
		}
		owner.ResetAll = true
		k = m.Get("/", "cookie: "+pair)
		now := app(m, k)
		if now == by || stickyPair(t, k) == "" {
			t.Errorf("%s fails: %s served, with %q", by, now, cookiesOf(k))
		}
		if again := app(m, m.Get("/", "cookie: "+stickyPair(t, k))); again != now {
			t.Errorf("the session went to %s, and is at %s", now, again)
		}
		owner.ResetAll = false
		m.W.Run(time.Second)
		m.Settled()
	})
}

// TestStickyCache: a response that all share names no application, and a client whose only cookie is the
// sidecar's gets it.
func TestStickyCache(t *testing.T) {
	for _, route := range []string{"cache: {ttl: 1h}", "cache: {ttl: 1h}, collapse: true"} {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{Service: sticky, Match: route})
		first := m.Get("/").Same()
		app(m, first)
		for _, headers := range [][]string{nil, {"cookie: " + stickyPair(t, first)}} {
			k := m.Get("/", headers...).Same()
			if by := app(m, k); by != "" || len(cookiesOf(k)) > 0 {
				t.Errorf("%s: %q: served by %q, with %q", route, headers, by, cookiesOf(k))
			}
		}
		m.Settled()
	}
}

// TestStickyStreams: streams are pinned like requests.
func TestStickyStreams(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{OneHop: true, Apps: 6, Service: sticky})
	by, pair := pinned(m)
	owner := m.Apps[by[0]-'a'].Addr
	client := shard.Client{Session: shard.Session{Pin: strings.TrimPrefix(pair, "srv=")}}
	cookies := func(at race.Target) string {
		return string(protocol.Find(at.Cookies.Apply(nil), "set-cookie"))
	}
	for range 3 {
		opened := m.Consumer.OpenFor(client)
		if opened.Target.Addr != owner || cookies(opened.Target) != "" {
			t.Errorf("a stream of %s went to %s, with %q", owner, opened.Target.Addr, cookies(opened.Target))
		}
		var retried *proxytest.Opened
		opened.Stream.Retry(fault.Connect, nil, func(s *race.Stream, at race.Target, f *fault.Failure) {
			retried = &proxytest.Opened{Stream: s, Target: at, Failure: f}
		})
		m.RunUntil("another endpoint", func() bool { return retried != nil })
		if set := cookies(retried.Target); retried.Failure != nil || !strings.HasPrefix(set, "srv=") || strings.HasPrefix(set, pair) {
			t.Errorf("after a failed dial: %v, with %q", retried.Failure, set)
		}
		opened.Stream.Close(false, 0, 0)
	}
	seen := map[string]bool{}
	for range 30 {
		l := m.Consumer.OpenFor(shard.Client{Session: shard.Session{Pin: "unknown", Secure: true}})
		if !strings.HasSuffix(cookies(l.Target), "; Secure") {
			t.Errorf("a new session has %q", cookies(l.Target))
		}
		seen[l.Target.Addr] = true
		l.Stream.Close(false, 0, 0)
	}
	if len(seen) < 2 {
		t.Errorf("all streams went to %v", seen)
	}
	m.Settled()
}
