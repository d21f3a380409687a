package exchange_test

import (
	"container/list"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/registry"
)

// hashBy is the YAML of a service with keys.
func hashBy(hash string) string {
	return "lb: {policy: consistent_hash, slow_start: 0, hash: {" + hash + "}}"
}

// app returns the application that serves the request, as a letter.
func app(m *proxytest.Mesh, request *proxytest.Call) string {
	m.T.Helper()
	by, _, _ := strings.Cut(m.ServedBy(request), " ")
	return by
}

// TestAffinity: requests with one key go to one application from all loops, by every kind of key.
func TestAffinity(t *testing.T) {
	for _, c := range []struct {
		hash string
		send func(m *proxytest.Mesh, key int) *proxytest.Call
	}{
		{"header: X-Key", func(m *proxytest.Mesh, key int) *proxytest.Call { return m.Post(10, fmt.Sprint("x-key: ", key)) }},
		{"cookie: sid", func(m *proxytest.Mesh, key int) *proxytest.Call {
			return m.Get("/", fmt.Sprint("cookie: a=b; sid=", key))
		}},
		{"query: k", func(m *proxytest.Mesh, key int) *proxytest.Call {
			return m.Get(fmt.Sprintf("/?n=%s&k=%d", m.Post(0).Nonce, key))
		}},
		{"path: true", func(m *proxytest.Mesh, key int) *proxytest.Call {
			return m.Get(fmt.Sprintf("/%d?n=%s", key, m.Post(0).Nonce))
		}},
		{"source: true", func(m *proxytest.Mesh, key int) *proxytest.Call {
			m.Clients = m.W.Loop(fmt.Sprint("10.0.7.", 10+key))
			return m.Post(10)
		}},
	} {
		t.Run(c.hash, func(t *testing.T) {
			proxytest.EachTopology(t, proxytest.MeshOptions{Loops: 2, Apps: 5, Service: hashBy(c.hash)}, func(t *testing.T, m *proxytest.Mesh) {
				owners := map[string]bool{}
				for key := range 12 {
					first := app(m, c.send(m, key))
					owners[first] = true
					for range 4 {
						if by := app(m, c.send(m, key)); by != first {
							t.Errorf("key %d: %s and %s", key, first, by)
						}
					}
				}
				if len(owners) < 3 {
					t.Errorf("12 keys at %d of 5 applications", len(owners))
				}
				m.Settled()
			})
		})
	}
}

// TestAffinityWithoutKey: a request without a key goes anywhere.
func TestAffinityWithoutKey(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{OneHop: true, Service: hashBy("header: x-key")})
	got := m.CountServed(1, 60)
	if slices.Min(got) == 0 {
		t.Errorf("requests by application: %v", got)
	}
	m.Settled()
}

// TestAffinityNext: hedges and retries go to the application that the key has without the first.
func TestAffinityNext(t *testing.T) {
	const keys = 8
	for _, hedges := range []bool{true, false} {
		t.Run(fmt.Sprintf("hedge=%v", hedges), func(t *testing.T) {
			o := proxytest.MeshOptions{Apps: 8, Service: proxytest.Fields(hashBy("header: x-key, balance: 0"), proxytest.HedgeOn)}
			if !hedges {
				o.Service = hashBy("header: x-key, balance: 0") + ", idempotent: true"
			}
			proxytest.EachTopology(t, o, func(t *testing.T, m *proxytest.Mesh) {
				m.WarmUp(50)
				var all []registry.Endpoint
				for i := range m.Apps {
					all = append(all, m.Endpoint(i))
				}
				for key := range keys {
					send := func() *proxytest.Call { return m.Post(10, fmt.Sprint("x-key: ", key)) }
					owner := int(app(m, send())[0] - 'a')
					m.Consumer.Update("compute", slices.Delete(slices.Clone(all), owner, owner+1)...)
					next := app(m, send())
					m.Consumer.Update("compute", all...)
					if hedges {
						m.Apps[owner].FrozenUntil = m.W.Now() + 100*time.Millisecond
					} else {
						m.Apps[owner].ResetAll = true
					}
					k := send()
					if by := app(m, k); by != next || k.Took > 50*time.Millisecond {
						t.Errorf("key %d of %c: served by %s after %v, want %s", key, 'a'+owner, by, k.Took, next)
					}
					m.Apps[owner].ResetAll = false
					m.W.Run(time.Second)
				}
				s := m.Consumer.Stats("compute")
				if hedges && s.HedgesWon < keys || !hedges && s.Retries < keys {
					t.Errorf("%d hedges won, %d retries", s.HedgesWon, s.Retries)
				}
				m.Settled()
			})
		})
	}
}

// TestAffinityCookie: a session without the cookie gets one, which leads to the same application,
// also after a reload.
func TestAffinityCookie(t *testing.T) {
	const hash = "cookie: sid, ttl: 1h"
	proxytest.EachTopology(t, proxytest.MeshOptions{Apps: 5, Service: hashBy(hash)}, func(t *testing.T, m *proxytest.Mesh) {
		m.Apps[0].ExtraHeaders = "set-cookie: own=1\r\n"
		owners := map[string]bool{}
		for range 10 {
			k := m.Get("/")
			first := app(m, k)
			owners[first] = true
			cookies := cookiesOf(k)
			pair, _, _ := strings.Cut(cookies[len(cookies)-1], ";")
			if value := strings.TrimPrefix(pair, "sid="); cookies[len(cookies)-1] != "sid="+value+"; Path=/; Max-Age=3600; HttpOnly; SameSite=Lax" {
				t.Fatalf("got %q", cookies)
			}
			if want := map[bool]int{true: 2, false: 1}[first == "a"]; len(cookies) != want {
				t.Errorf("%s: cookies %q", first, cookies)
			}
			m.Consumer.Reload(proxytest.ReloadYAML(m, "{service: compute}", "compute: {%s, timeout: 9s, "+hashBy(hash)+"}"))
			for range 3 {
				k := m.Get("/", "cookie: "+pair)
				if by := app(m, k); by != first {
					t.Errorf("the session began at %s and went on at %s", first, by)
				}
				if cookies := cookiesOf(k); len(cookies) > 0 && first != "a" {
					t.Errorf("a session that has its cookie got %q", cookies)
				}
			}
		}
		if len(owners) < 2 {
			t.Errorf("all sessions began at %v", owners)
		}
		m.Consumer.Reload(proxytest.ReloadYAML(m, "{service: compute}", "compute: {%s, "+hashBy("cookie: sid")+"}"))
		m.Apps[0].ExtraHeaders = ""
		if k := m.Get("/"); app(m, k) == "" || len(cookiesOf(k)) > 0 {
			t.Error("a cookie was set without a ttl")
		}
		m.Settled()
	})
}

func cookiesOf(k *proxytest.Call) (all []string) {
	for _, h := range k.Headers {
		if protocol.EqualFold(h.Name, "set-cookie") {
			all = append(all, string(h.Value))
		}
	}
	return all
}

// TestAffinityReload: a reload changes the policy, the key and the bound.
func TestAffinityReload(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{OneHop: true, Apps: 4})
	busiest := func(n int) (most int) {
		for _, a := range m.Apps {
			a.Served = 0
		}
		var calls []*proxytest.Call
		for range n {
			k := m.Post(10, "x-key: a")
			m.Do(k)
			calls = append(calls, k)
		}
		m.Finish(calls...)
		for _, a := range m.Apps {
			most = max(most, a.Served)
		}
		return most
	}
	reload := func(service string) {
		m.Consumer.Reload(proxytest.ReloadYAML(m, "{service: compute}", "compute: {%s, "+service+"}"))
	}
	for _, c := range []struct {
		service string
		want    int // requests at once at the busiest application, of 40
	}{
		{"lb: {policy: least_pending}", 10},
		{hashBy("header: x-key, balance: 0"), 40},
		{hashBy("header: x-key, balance: 2"), 20},
		{hashBy("header: x-key, balance: 1.25"), 13},
		{hashBy("source: true, balance: 0"), 40},
		{"lb: {policy: least_pending}", 10},
	} {
		reload(c.service)
		if got := busiest(40); got != c.want {
			t.Errorf("%s: the busiest application had %d requests of 40, want %d", c.service, got, c.want)
		}
	}
	m.Settled()
}

// TestAffinitySubset: a key stays with its application of the subset.
func TestAffinitySubset(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 8, Service: "lb: {policy: consistent_hash, subset: 3, hash: {header: x-key}}"})
	owners := map[string]bool{}
	for key := range 30 {
		first := app(m, m.Post(10, fmt.Sprint("x-key: ", key)))
		owners[first] = true
		if by := app(m, m.Post(10, fmt.Sprint("x-key: ", key))); by != first {
			t.Errorf("key %d: %s and %s", key, first, by)
		}
	}
	if len(owners) != 3 {
		t.Errorf("keys at %v, want 3 applications", owners)
	}
	m.Settled()
}

// TestAffinityStreams: a stream with a key goes where its requests go, and one without anywhere.
func TestAffinityStreams(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{OneHop: true, Apps: 6, Service: hashBy("source: true, balance: 0")})
	open := func(c shard.Client) string {
		l := m.Consumer.OpenFor(c)
		l.Stream.Close(false, 0, 0)
		return l.Target.Addr
	}
	anywhere, byKey, byPeer := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for range 30 {
		anywhere[open(shard.Client{})] = true
		byKey[open(shard.Client{Session: shard.Session{Key: 1 << 63}})] = true
		byPeer[open(shard.Client{Addr: "10.0.0.9:1"})] = true
	}
	if len(anywhere) < 2 || len(byKey) != 1 || len(byPeer) != 1 {
		t.Errorf("streams without a key at %v, with one at %v, of a peer at %v", anywhere, byKey, byPeer)
	}
	m.Settled()
}

// lru is a cache of the latest keys.
type lru struct {
	room  int
	order list.List
	at    map[string]*list.Element
	hits  int
}

func newLRU(room int) *lru { return &lru{room: room, at: map[string]*list.Element{}} }

func (c *lru) get(key string) {
	if e := c.at[key]; e != nil {
		c.hits++
		c.order.MoveToFront(e)
		return
	}
	c.at[key] = c.order.PushFront(key)
	if c.order.Len() > c.room {
		delete(c.at, c.order.Remove(c.order.Back()).(string))
	}
}

// TestAffinityOfCaches: applications with a cache each have nearly the hits of one cache of their
// size together, and many more than without affinity.
func TestAffinityOfCaches(t *testing.T) {
	const apps, room, requests, clients = 5, 80, 12_000, 100
	share := func(policy string) (hits, one float64) {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{OneHop: true, Apps: apps, Service: policy})
		whole := newLRU(apps * room)
		var own []*lru
		for _, a := range m.Apps {
			c := newLRU(room)
			own = append(own, c)
			a.OnRequest = func(req *protocol.Request) {
				c.get(string(req.Path))
				whole.get(string(req.Path))
			}
		}
		m.Apps.SetLognormalDelays(1)
		rnd := rand.New(rand.NewPCG(1, 2))
		zipf := rand.NewZipf(rnd, 1.0001, 1, 2000)
		var all []*proxytest.Call
		for range clients {
			var calls []*proxytest.Call
			for range requests / clients {
				calls = append(calls, m.Get(fmt.Sprint("/", zipf.Uint64())))
			}
			m.Do(calls...)
			all = append(all, calls...)
		}
		m.OK(all...)
		m.Settled()
		for _, c := range own {
			hits += float64(c.hits)
		}
		return hits / requests, float64(whole.hits) / requests
	}
	for _, c := range []struct {
		policy   string
		from, to float64 // share of hits below that of one cache
	}{
		{hashBy("path: true, balance: 1.25"), -0.01, 0.05},
		{hashBy("path: true, balance: 2"), -0.01, 0.01},
		{hashBy("path: true, balance: 0"), -0.01, 0.01},
		{"lb: {policy: least_pending}", 0.2, 1},
	} {
		hits, one := share(c.policy)
		t.Logf("%s: %.3f hits, %.3f of one cache", c.policy, hits, one)
		if less := one - hits; less < c.from || less > c.to {
			t.Errorf("%s: %.3f hits, %.3f of one cache", c.policy, hits, one)
		}
	}
}
