package exchange_test

import (
	"fmt"
	"testing"

	"github.com/remora-proxy/remora/proxy/proxytest"
)

// TestRateLimitKeys: requests with one key share a limit, over all loops, whether the listener or
// the route has it. Those with another key have a limit of their own.
func TestRateLimitKeys(t *testing.T) {
	const limit = "rate_limit: {rate: 1, burst: 3, key: %s}"
	for _, c := range []struct {
		key    string
		direct bool
		send   func(m *proxytest.Mesh, i int) *proxytest.Call // i is 0 or 1
	}{
		{"path", true, func(m *proxytest.Mesh, i int) *proxytest.Call {
			return m.Get(fmt.Sprintf("/%d?x=%s", i, m.Post(0).Nonce))
		}},
		{"header X-User", false, func(m *proxytest.Mesh, i int) *proxytest.Call { return m.Post(10, fmt.Sprint("x-user: ", i)) }},
		{"header X-User", true, func(m *proxytest.Mesh, i int) *proxytest.Call {
			return m.Post(10, []string{"x-user: there", "x-other: absent"}[i])
		}},
		{"peer", false, func(m *proxytest.Mesh, i int) *proxytest.Call {
			m.Clients = m.W.Loop([]string{"10.0.0.7", "10.0.0.8"}[i])
			return m.Post(10)
		}},
	} {
		for _, at := range []string{"listener", "route"} {
			t.Run(c.key+" of the "+at, func(t *testing.T) {
				o := proxytest.MeshOptions{Loops: 2, OneHop: c.direct}
				if at == "route" {
					o.Match = fmt.Sprintf(limit, c.key)
				} else {
					o.Listener = fmt.Sprintf(limit, c.key)
				}
				m := proxytest.NewMesh(t, o)
				for i := range 2 {
					var calls []*proxytest.Call
					for range 5 {
						k := c.send(m, i)
						m.Do(k)
						calls = append(calls, k)
					}
					m.Finish(calls...)
					if n := proxytest.CountCodes(calls); n[""] != 3 || n["rate-limited"] != 2 {
						t.Errorf("requests of key %d: %v, want 3 served and 2 rate-limited", i, n)
					}
				}
				m.Settled()
			})
		}
	}
}

// TestRateLimitPaths: all spellings of a path share a limit, although no route has a path. So do paths that have no form.
func TestRateLimitPaths(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Match: "rate_limit: {rate: 1, burst: 3, key: path}"})
	for _, c := range []struct {
		paths  []string
		served int
	}{
		{[]string{"/a/b", "/a//b", "//a/b", "/a/./b", "/a/c/../b", "/%61/b", "/a%2Fb", "/a%2fb", "/a%5Cb", "/a\\b", "/x/%2e%2e/a/b", "/a/b?q"}, 3},
		{[]string{"/%zz", "/%z", "/b%00", "/..;x/c"}, 3},
		{[]string{"/A/b", "/a/b/", "/a/b;x", "/a/b%3Fx"}, 4},
		{[]string{"/%c3", "/%C3", "/c/../%c3", "//%c3"}, 3},
	} {
		var calls []*proxytest.Call
		for _, path := range c.paths {
			k := m.Get(path)
			m.Do(k)
			calls = append(calls, k)
		}
		m.Finish(calls...)
		if n := proxytest.CountCodes(calls); n[""] != c.served || n["rate-limited"] != len(c.paths)-c.served {
			t.Errorf("%q: %v, want %d served", c.paths, n, c.served)
		}
	}
	m.Settled()
}

// TestRateLimitReload: a route keeps its buckets through a reload that does not change its limit.
func TestRateLimitReload(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Match: "rate_limit: {rate: 1, burst: 3, key: path}"})
	burst := func(served int) {
		t.Helper()
		calls := m.Burst(5, 10)
		m.Finish(calls...)
		if n := proxytest.CountCodes(calls); n[""] != served {
			t.Errorf("%v, want %d served", n, served)
		}
	}
	burst(3)
	m.Consumer.Reload(proxytest.ReloadYAML(m, `{service: compute, timeout: 9s, rate_limit: {rate: 1, burst: 3, key: path}}`, `compute: {%s}`))
	burst(0)
	m.Consumer.Reload(proxytest.ReloadYAML(m, `{service: compute, rate_limit: {rate: 1, burst: 4, key: path}}`, `compute: {%s}`))
	burst(4)
	m.Consumer.Reload(proxytest.ReloadYAML(m, `{service: compute}`, `compute: {%s}`))
	burst(5)
	m.Settled()
}
