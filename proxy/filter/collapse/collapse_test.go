package collapse_test

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/filter/collapse"
	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/proxy/sim"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

func TestMain(m *testing.M) { proxytest.Main(m) }

// newMesh returns a mesh whose applications take a while to respond, and what counts their requests.
func newMesh(t *testing.T, o proxytest.MeshOptions, took time.Duration) (*proxytest.Mesh, *int) {
	o.Match = proxytest.Fields("collapse: true", o.Match)
	m, got := proxytest.NewMesh(t, o), new(int)
	for _, a := range m.Apps {
		a.Delay = func() time.Duration { return took }
		a.OnRequest = func(*protocol.Request) { *got++ }
		a.Body = func(*protocol.Request) []byte { return fmt.Append(nil, "body of ", *got) }
	}
	return m, got
}

func crowd(m *proxytest.Mesh, n int, headers ...string) (calls []*proxytest.Call) {
	for range n {
		calls = append(calls, m.Get("/x", headers...).Same())
	}
	return calls
}

// send sends each call on a connection of its own, within a millisecond.
func send(m *proxytest.Mesh, calls ...*proxytest.Call) (clients []*proxytest.Client) {
	for _, c := range calls {
		clients = append(clients, m.Do(c))
	}
	return clients
}

// check waits for the calls, and checks that they have got responses and how many requests there were.
func check(m *proxytest.Mesh, got *int, want int, calls ...*proxytest.Call) {
	m.T.Helper()
	m.OK(calls...)
	m.Settled()
	if *got != want {
		m.T.Errorf("the applications got %d requests, want %d", *got, want)
	}
}

func counts(m *proxytest.Mesh) stats.FilterStats { return m.Consumer.Stats("compute").FilterStats }

const slowSecond = "hedge: {mode: off, delay: 10s}, timeout: 1m" // no second leader

// TestSameRequests: of many same requests one is sent. They are the same only if nothing differs that a
// response may depend on.
func TestSameRequests(t *testing.T) {
	for _, direct := range []bool{true, false} {
		m, got := newMesh(t, proxytest.MeshOptions{OneHop: direct, Service: slowSecond}, 100*time.Millisecond)
		calls := crowd(m, 1000)
		send(m, calls...)
		check(m, got, 1, calls...)
		if c := counts(m); c != (stats.FilterStats{Collapses: true, Collapsed: 999}) {
			t.Errorf("counted %+v", c)
		}
		calls = crowd(m, 2)
		send(m, calls...)
		check(m, got, 2, calls...)
	}
}

// TestWaitingArePending: requests that wait count for max_pending, and one more is refused.
func TestWaitingArePending(t *testing.T) {
	m, got := newMesh(t, proxytest.MeshOptions{Service: slowSecond + ", max_pending: 10"}, 100*time.Millisecond)
	calls := crowd(m, 11)
	send(m, calls...)
	m.Finish(calls...)
	refused := slices.IndexFunc(calls, func(c *proxytest.Call) bool { return c.Status == 503 && c.Code == "overloaded" })
	if refused < 0 {
		t.Fatal("no request is refused")
	}
	check(m, got, 1, slices.Delete(calls, refused, refused+1)...)
	again := crowd(m, 10) // there is room again
	send(m, again...)
	check(m, got, 2, again...)
}

// TestTooManyWait: requests beyond those that may wait are sent.
func TestTooManyWait(t *testing.T) {
	defer collapse.SetMaxWaiting(10)()
	for _, c := range []struct{ requests, sent int }{{11, 1}, {12, 2}, {15, 5}} {
		m, got := newMesh(t, proxytest.MeshOptions{Service: slowSecond}, 100*time.Millisecond)
		calls := crowd(m, c.requests)
		send(m, calls...)
		check(m, got, c.sent, calls...)
		if n := counts(m); n.Collapsed != 10 || n.CollapseAlone != uint64(c.sent-1) {
			t.Errorf("%d requests: counted %+v", c.requests, n)
		}
		again := crowd(m, 12) // there is room again, for as many
		send(m, again...)
		check(m, got, c.sent+2, again...)
	}
}

func TestDifferentRequests(t *testing.T) {
	m, got := newMesh(t, proxytest.MeshOptions{Service: slowSecond + ", idempotent: true"}, 100*time.Millisecond)
	calls := []*proxytest.Call{
		m.Get("/x").Same(), m.Get("/y").Same(), m.Get("/x", "Cookie: a").Same(), m.Get("/x", "Cookie: b").Same(),
		m.Get("/x", "Authorization: a").Same(), m.Get("/x", "Range: bytes=0-1").Same(), m.Post(10).Same(), m.Post(11).Same(),
		m.Post(10, "Content-Type: a").Same(), m.Post(10, "Idempotency-Key: a").Same(), m.CallGRPC().Same(), m.CallGRPC().Same(),
	}
	same := []*proxytest.Call{m.Get("/x", "User-Agent: a").Same(), m.Post(10).Same()}
	other := m.Post(10).Same()
	other.Raw[len(other.Raw)-1] = 'y'
	send(m, append(append(calls, same...), other)...)
	check(m, got, len(calls)+1, append(append(calls, same...), other)...)
}

// TestNotIdempotent: a request that may not be sent twice may not be shared, either.
func TestNotIdempotent(t *testing.T) {
	m, got := newMesh(t, proxytest.MeshOptions{Service: slowSecond}, 100*time.Millisecond)
	calls := []*proxytest.Call{m.Post(10).Same(), m.Post(10).Same()}
	send(m, calls...)
	check(m, got, 2, calls...)
}

// TestSecondLeader: if the first request is late, a second one is sent, and its response is for all but
// the first. Nothing is done until that responds.
func TestSecondLeader(t *testing.T) {
	m, got := newMesh(t, proxytest.MeshOptions{Service: "hedge: {mode: off, delay: 20ms}, timeout: 1m"}, 0)
	first := true
	for _, a := range m.Apps {
		a.Delay = func() time.Duration {
			if first {
				first = false
				return 10 * time.Second
			}
			return time.Millisecond
		}
	}
	calls := crowd(m, 50)
	send(m, calls...)
	m.RunUntil("all responses but one", func() bool {
		return len(slices.DeleteFunc(slices.Clone(calls), func(c *proxytest.Call) bool { return c.Done })) == 1
	})
	turns := 0
	m.W.OnTurn(func(*sim.Loop, int, int) { turns++ })
	m.W.Run(5 * time.Second)
	if turns > 100 { // of all loops
		t.Errorf("%d turns in which the first request is late and nobody waits", turns)
	}
	check(m, got, 2, calls...)
	late := 0
	for _, c := range calls {
		if c.Took > 100*time.Millisecond {
			late++
		}
	}
	if late != 1 {
		t.Errorf("%d calls are late, want the first one", late)
	}
}

// TestSecondLeaderIn: a second request is sent when the first one has had the delay, whenever the others came, and at once if
// none had come before.
func TestSecondLeaderIn(t *testing.T) {
	const tolerance = 4 * time.Millisecond // a connect, and the way to the application
	for _, c := range []struct{ at, want []time.Duration }{
		{[]time.Duration{0, 5, 15}, []time.Duration{0, 20}},
		{[]time.Duration{0, 15, 19}, []time.Duration{0, 20}},
		{[]time.Duration{0, 30, 40}, []time.Duration{0, 30}},
	} {
		m, got := newMesh(t, proxytest.MeshOptions{OneHop: true, Service: "hedge: {mode: off, delay: 20ms}, timeout: 1m"}, time.Second)
		began, sent := m.W.Now(), []time.Duration(nil)
		for _, a := range m.Apps {
			a.OnRequest = func(*protocol.Request) {
				*got++
				sent = append(sent, m.W.Now()-began)
			}
		}
		calls := crowd(m, len(c.at))
		for i, call := range calls {
			m.W.Run(began + c.at[i]*time.Millisecond - m.W.Now())
			send(m, call)
		}
		check(m, got, 2, calls...)
		if len(sent) != len(c.want) {
			t.Fatalf("requests that come after %d ms are sent after %v, want %d ms", c.at, sent, c.want)
		}
		for i, want := range c.want {
			if off := sent[i] - want*time.Millisecond; off < 0 || off > tolerance {
				t.Errorf("requests that come after %d ms are sent after %v, want %d ms", c.at, sent, c.want)
			}
		}
	}
}

// TestDelayOfNextLeader: after the first client has left, the delay counts from when the next request is sent.
func TestDelayOfNextLeader(t *testing.T) {
	m, got := newMesh(t, proxytest.MeshOptions{OneHop: true, Service: "hedge: {mode: off, delay: 20ms}, timeout: 1m"}, time.Second)
	calls := crowd(m, 3)
	first := m.Do(calls[0])
	m.RunUntil("a request", func() bool { return *got == 1 })
	send(m, calls[1])
	m.W.Run(10 * time.Millisecond)
	first.Leave()
	m.RunUntil("the request of the next one", func() bool { return *got == 2 })
	second := m.W.Now()
	m.W.Run(time.Millisecond)
	send(m, calls[2])
	m.RunUntil("a second request beside it", func() bool { return *got == 3 })
	if after := m.W.Now() - second; after < 15*time.Millisecond {
		t.Errorf("it is sent %v after the one before", after)
	}
	check(m, got, 3, calls[1:]...)
}

// TestResponsesAtOnce: if both requests that were sent have their responses at once, each has its own, and the others one of them.
func TestResponsesAtOnce(t *testing.T) {
	m, got := newMesh(t, proxytest.MeshOptions{OneHop: true, Service: "hedge: {mode: off, delay: 20ms}, timeout: 1m"}, 0)
	for _, a := range m.Apps {
		a.FrozenUntil = m.W.Now() + 100*time.Millisecond
	}
	calls := crowd(m, 600)
	send(m, calls...)
	check(m, got, 2, calls...)
	if n := counts(m).Collapsed; n != 598 {
		t.Errorf("%d share a response, want 598", n)
	}
}

// TestPersonalForOne: after a response for one client alone, which no other client waited for, later requests still wait for each other.
func TestPersonalForOne(t *testing.T) {
	m, got := newMesh(t, proxytest.MeshOptions{Service: slowSecond}, 100*time.Millisecond)
	for _, a := range m.Apps {
		a.ExtraHeaders = "Set-Cookie: a=b\r\n"
	}
	calls := crowd(m, 1)
	send(m, calls...)
	check(m, got, 1, calls...)
	for _, a := range m.Apps {
		a.ExtraHeaders = ""
	}
	calls = crowd(m, 10)
	send(m, calls...)
	check(m, got, 2, calls...)
}

// TestTwoLeaders: no third request is sent while two are late.
func TestTwoLeaders(t *testing.T) {
	m, got := newMesh(t, proxytest.MeshOptions{Service: "hedge: {mode: off, delay: 20ms}, timeout: 1m"}, time.Second)
	calls := crowd(m, 50)
	send(m, calls...)
	check(m, got, 2, calls...)
}

// TestSecondLeaderLeaves: if the client of the second request leaves while the first is late, a third one is sent.
func TestSecondLeaderLeaves(t *testing.T) {
	m, got := newMesh(t, proxytest.MeshOptions{Service: "hedge: {mode: off, delay: 20ms}, timeout: 1m"}, 0)
	for _, a := range m.Apps {
		a.Delay = func() time.Duration {
			return map[bool]time.Duration{true: 10 * time.Second, false: time.Millisecond}[*got <= 2]
		}
	}
	second := 0
	count := m.Apps[0].OnRequest
	for _, a := range m.Apps {
		a.OnRequest = func(req *protocol.Request) {
			count(req)
			second, _ = strconv.Atoi(string(protocol.Find(req.Headers, "x-id")))
		}
	}
	var calls []*proxytest.Call
	for i := range 10 {
		calls = append(calls, m.Get("/x", fmt.Sprint("x-id: ", i)).Same())
	}
	clients := send(m, calls...)
	m.RunUntil("a second request", func() bool { return *got == 2 })
	clients[second].Leave()
	check(m, got, 3, slices.Delete(slices.Clone(calls), second, second+1)...)
	late := slices.DeleteFunc(calls, func(c *proxytest.Call) bool { return c.Took < 100*time.Millisecond })
	if len(late) != 1 {
		t.Errorf("%d calls are late, want the first one", len(late))
	}
}

// TestNoneIsLeftToLead: when the first request is late and nobody waits any more, no second one is sent.
func TestNoneIsLeftToLead(t *testing.T) {
	m, got := newMesh(t, proxytest.MeshOptions{Service: "hedge: {mode: off, delay: 20ms}, timeout: 1m"}, 100*time.Millisecond)
	calls := crowd(m, 2)
	clients := send(m, calls...)
	m.RunUntil("a request", func() bool { return *got == 1 })
	clients[1].Leave()
	check(m, got, 1, calls[0])
}

// TestLeaderLeaves: if the client leaves whose request was sent, another request is sent.
func TestLeaderLeaves(t *testing.T) {
	m, got := newMesh(t, proxytest.MeshOptions{Service: slowSecond}, 100*time.Millisecond)
	leads := 0
	for _, a := range m.Apps {
		a.OnRequest = func(req *protocol.Request) {
			*got++
			leads, _ = strconv.Atoi(string(protocol.Find(req.Headers, "x-id")))
		}
	}
	var calls []*proxytest.Call
	for i := range 50 {
		calls = append(calls, m.Get("/x", fmt.Sprint("x-id: ", i)).Same())
	}
	clients := send(m, calls...)
	for n := range 5 {
		m.RunUntil("a request", func() bool { return *got == n+1 })
		clients[leads].Leave()
		calls[leads] = nil
	}
	calls = slices.DeleteFunc(calls, func(c *proxytest.Call) bool { return c == nil })
	check(m, got, 6, calls...)
	for _, c := range calls {
		if c.Took > 300*time.Millisecond {
			t.Fatalf("a call took %v", c.Took)
		}
	}
	if len(calls) != 45 {
		t.Errorf("%d calls are left", len(calls))
	}
}

// TestWaiterLeaves: one that waits and leaves takes nobody with it.
func TestWaiterLeaves(t *testing.T) {
	m, got := newMesh(t, proxytest.MeshOptions{Service: slowSecond}, 100*time.Millisecond)
	calls := crowd(m, 50)
	clients := send(m, calls...)
	m.RunUntil("a request", func() bool { return *got == 1 })
	for _, c := range clients[10:20] {
		c.Leave()
	}
	check(m, got, 1, append(append([]*proxytest.Call{}, calls[:10]...), calls[20:]...)...)
}

// TestBatches: in one turn a bounded number of requests gets the response, and a bounded number of bytes.
func TestBatches(t *testing.T) {
	for _, c := range []struct {
		requests, bytes int
		want            []uint64 // requests that get the response, of each turn
	}{
		{300, 1, []uint64{256, 43}},
		{7, 512 << 10, []uint64{2, 2, 2}},
		{5, 768 << 10, []uint64{2, 2}},
		{5, 1<<20 - 1, []uint64{2, 2}},
		{4, 2 << 20, []uint64{1, 1, 1}},
	} {
		m, got := newMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Service: slowSecond}, 100*time.Millisecond)
		m.Apps[0].Body = func(*protocol.Request) []byte { return make([]byte, c.bytes) }
		calls := crowd(m, c.requests)
		send(m, calls...)
		var turns []uint64
		last := uint64(0)
		m.RunUntil("all responses", func() bool {
			if n := counts(m).Collapsed; n != last {
				turns, last = append(turns, n-last), n
			}
			return last == uint64(c.requests-1)
		})
		if !slices.Equal(turns, c.want) {
			t.Errorf("%d requests for %d bytes: %v in one turn, want %v", c.requests, c.bytes, turns, c.want)
		}
		check(m, got, 1, calls...)
	}
}

// TestLeaderFails: after one failure another request is sent; a second failure is for all.
func TestLeaderFails(t *testing.T) {
	for _, c := range []struct {
		failures, requests int
		want               map[string]int // responses by code
	}{
		{1, 600, map[string]int{"": 599, "upstream-reset": 1}},
		{2, 600, map[string]int{"upstream-reset": 600}},
		{2, 3, map[string]int{"upstream-reset": 3}},
	} {
		m, got := newMesh(t, proxytest.MeshOptions{OneHop: true, Service: slowSecond + ", retry: {on: []}"}, 100*time.Millisecond)
		for _, a := range m.Apps {
			a.OnRequest = func(*protocol.Request) {
				*got++
				a.DropNext = *got <= c.failures
			}
		}
		calls := crowd(m, c.requests)
		send(m, calls...)
		m.Finish(calls...)
		m.Settled()
		codes := proxytest.CountCodes(calls)
		if !maps.Equal(codes, c.want) || *got != 2 {
			t.Errorf("%d failures: responses %v of %d requests, want %v", c.failures, codes, *got, c.want)
		}
		again := crowd(m, 10)
		send(m, again...)
		check(m, got, 3, again...)
	}
}

// TestLeaderTimesOut: clients that wait only a short time decide nothing for the others.
func TestLeaderTimesOut(t *testing.T) {
	m, got := newMesh(t, proxytest.MeshOptions{Service: slowSecond}, 100*time.Millisecond)
	hurried := []*proxytest.Call{m.Get("/x", "x-remora-timeout-ms: 30").Same(), m.Get("/x", "x-remora-timeout-ms: 60").Same()}
	for _, c := range hurried {
		send(m, c)
		m.W.Run(5 * time.Millisecond)
	}
	calls := crowd(m, 50)
	send(m, calls...)
	m.Finish(hurried...)
	m.OK(calls...)
	m.Settled()
	if hurried[0].Code != "deadline" || *got > 3 {
		t.Errorf("the hurried ones got %q and %q, the applications %d requests", hurried[0].Code, hurried[1].Code, *got)
	}
}

// TestPersonalResponses: what is for one client is for no other, and the next same requests do not wait.
func TestPersonalResponses(t *testing.T) {
	for _, c := range []struct {
		status int
		header string
	}{
		{200, "Set-Cookie: a=b"}, {200, "Cache-Control: private"}, {200, "Cache-Control: no-store"}, {200, "Vary: *"},
		{400, ""}, {401, ""}, {401, "WWW-Authenticate: Basic"}, {403, ""}, {403, "Cache-Control: max-age=60"}, {406, ""}, {407, ""}, {429, ""}, {431, ""},
	} {
		m, got := newMesh(t, proxytest.MeshOptions{Service: slowSecond}, 100*time.Millisecond)
		for _, a := range m.Apps {
			if a.Status = c.status; c.header != "" {
				a.ExtraHeaders = c.header + "\r\n"
			}
		}
		for sent := 10; sent <= 20; sent += 10 {
			calls := crowd(m, 10)
			send(m, calls...)
			m.Finish(calls...)
			m.Settled()
			for _, call := range calls {
				if call.Status != c.status || *got != sent || sent > 10 && call.Took > 150*time.Millisecond {
					t.Fatalf("%d %s: a call got %d after %v; %d requests, want %d", c.status, c.header, call.Status, call.Took, *got, sent)
				}
			}
		}
	}
}

// TestPersonalAfterShared: a response that was for all is for nobody later, also if a response for one client alone follows.
func TestPersonalAfterShared(t *testing.T) {
	m, got := newMesh(t, proxytest.MeshOptions{Service: slowSecond}, 100*time.Millisecond)
	for round, want := range []int{1, 11, 12} {
		for _, a := range m.Apps {
			a.ExtraHeaders = map[bool]string{true: "Set-Cookie: a=b\r\n"}[round == 1]
		}
		calls := crowd(m, 10)
		send(m, calls...)
		check(m, got, want, calls...)
		m.W.Run(2 * time.Second)
	}
}

// TestTrailers: a response with trailers is for one client. A second later same requests wait for each other again.
func TestTrailers(t *testing.T) {
	m, got := newMesh(t, proxytest.MeshOptions{OneHop: true, Service: slowSecond}, 100*time.Millisecond)
	for _, a := range m.Apps {
		a.Trailers = "x-trailer: 1\r\n"
	}
	for round, wait := range []bool{true, false, true} {
		calls := crowd(m, 10)
		send(m, calls...)
		check(m, got, 10*(round+1), calls...)
		late := 0
		for _, c := range calls {
			if c.Took > 150*time.Millisecond {
				late++
			}
		}
		if want := map[bool]int{true: 9, false: 0}[wait]; late != want {
			t.Errorf("round %d: %d calls have waited, want %d", round, late, want)
		}
		if round > 0 {
			m.W.Run(time.Second)
		}
	}
	if n := counts(m); n.Collapsed != 0 || n.CollapseAlone != 9+10+9 {
		t.Errorf("counted %+v", n)
	}
}

// TestSharedErrors: a failure of the service is for all, and what is not there is there for none.
func TestSharedErrors(t *testing.T) {
	for _, status := range []int{404, 410, 500, 503} {
		m, got := newMesh(t, proxytest.MeshOptions{Service: slowSecond + ", retry: {on: []}"}, 100*time.Millisecond)
		for _, a := range m.Apps {
			a.Status = status
		}
		calls := crowd(m, 10)
		send(m, calls...)
		m.Finish(calls...)
		m.Settled()
		if *got != 1 {
			t.Errorf("%d: %d requests", status, *got)
		}
	}
}

// TestVary: a response is for the requests that have what it varies by.
func TestVary(t *testing.T) {
	m, got := newMesh(t, proxytest.MeshOptions{Service: slowSecond}, 100*time.Millisecond)
	for _, a := range m.Apps {
		a.ExtraHeaders = "Vary: Accept\r\n"
	}
	calls := append(crowd(m, 10, "Accept: a"), crowd(m, 3, "Accept: b")...)
	send(m, calls...)
	check(m, got, 4, calls...)
}

// TestCollapsedMisses: with a cache, one response is stored once and is for all that waited, also if
// it is the validation of a stored one.
func TestCollapsedMisses(t *testing.T) {
	m, got := newMesh(t, proxytest.MeshOptions{OneHop: true, Apps: 1, Match: "cache: {stale: 0s}", Service: slowSecond}, 100*time.Millisecond)
	a := m.Apps[0]
	a.ExtraHeaders = "ETag: \"a\"\r\n"
	a.OnRequest = func(req *protocol.Request) {
		*got++
		a.Status = 200
		if string(protocol.Find(req.Headers, "if-none-match")) == `"a"` {
			a.Status = 304
		}
	}
	for want, conditional := 1, 0; want <= 3; want++ {
		calls := append(crowd(m, 20), crowd(m, conditional, `If-None-Match: "a"`)...)
		send(m, calls...)
		m.Finish(calls...)
		m.Settled()
		collapsed := 0
		for i, c := range calls {
			if said := protocol.Find(c.Headers, "cache-status"); string(said) == "remora; fwd=miss; collapsed" {
				collapsed++
			}
			if wantStatus := map[bool]int{true: 200, false: 304}[i < 20]; c.Status != wantStatus {
				t.Fatalf("round %d, call %d: status %d %s", want, i, c.Status, c.Code)
			}
		}
		if *got != want || collapsed != len(calls)-1 {
			t.Errorf("round %d: %d requests, %d collapsed", want, *got, collapsed)
		}
		conditional = 10
		m.W.Run(2 * time.Second)
	}
	if c := counts(m); c.CacheRefused != 0 || c.CacheRevalidated != 60 || c.Collapsed != 19+29+29 {
		t.Errorf("counted %+v", c)
	}
}

// TestNextOfFailedLeader: a client whose request leads and fails at once may have sent the same request
// again, which begins before the flight of the first one is over.
func TestNextOfFailedLeader(t *testing.T) {
	m, got := newMesh(t, proxytest.MeshOptions{OneHop: true, Service: slowSecond}, 100*time.Millisecond)
	first, next := m.Get("/x").Same(), m.Get("/x").Same()
	clients := send(m, first)
	m.RunUntil("a request", func() bool { return *got == 1 })
	next.Raw = append(slices.Clone(next.Raw), next.Raw...)
	clients = append(clients, send(m, next)...)
	m.W.Run(5 * time.Millisecond)
	m.Consumer.Update("compute")
	clients[0].Leave()
	m.RunUntil("both responses", func() bool { return next.Done && len(clients[1].In) > 0 })
	if next.Code != "no-endpoint" || !bytes.Contains(clients[1].In, []byte("no-endpoint")) {
		t.Errorf("got %q, then %q", next.Code, clients[1].In)
	}
	m.Settled()
}

// TestBreaker: for the breaker a failure counts as often as it was sent, for however many it is.
func TestBreaker(t *testing.T) {
	for code, fail := range map[string]func(a *proxytest.App, sent int){
		"upstream-reset": func(a *proxytest.App, sent int) { a.DropNext = sent <= 2 },
		"deadline": func(a *proxytest.App, sent int) {
			a.Delay = func() time.Duration {
				return map[bool]time.Duration{true: time.Second, false: time.Millisecond}[sent <= 2]
			}
		},
	} {
		m, got := newMesh(t, proxytest.MeshOptions{
			OneHop: true, Service: "hedge: {mode: off, delay: 100ms}, timeout: 300ms, retry: {on: []}, breaker: {consecutive: 5, open: 1m}",
		}, 100*time.Millisecond)
		for _, a := range m.Apps {
			a.OnRequest = func(*protocol.Request) { *got++; fail(a, *got) }
		}
		calls := crowd(m, 20)
		send(m, calls...)
		m.Finish(calls...)
		if codes := proxytest.CountCodes(calls); codes[code] != 20 || *got != 2 {
			t.Errorf("%s: responses %v of %d requests", code, codes, *got)
		}
		after := m.Get("/y")
		send(m, after)
		check(m, got, 3, after)
	}
}
