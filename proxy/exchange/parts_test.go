package exchange

import (
	"log/slog"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/dubbo"
	"github.com/remora-proxy/remora/proxy/allow"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/hedge"
	"github.com/remora-proxy/remora/proxy/limit"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/route"
	"github.com/remora-proxy/remora/proxy/service"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/sim"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// onLoop calls do on a loop with a shard, whose process has memory. A second passes before it returns.
func onLoop(do func(w *shard.Shard)) {
	world := sim.New(1)
	onLoopOf(world, do)
	world.Run(time.Second)
}

// onLoopOf is onLoop in a world that goes on.
func onLoopOf(world *sim.World, do func(w *shard.Shard)) {
	l := world.Loop("a")
	l.Do(func() {
		cfg := config.Default()
		w := shard.New(new(shard.Process), 0, l, slog.New(slog.DiscardHandler), 1)
		w.Process.Loops = 1
		w.Process.Budget.Configure(&cfg.Limits)
		w.Configure(cfg)
		do(w)
	})
}

// serviceOn returns a service with changed settings.
func serviceOn(w *shard.Shard, change func(c *config.Service)) *service.Service {
	c := config.DefaultService("s")
	change(c)
	m := service.NewMember(c, service.Member{}, 1)
	m.Prepare(w, "", nil)
	return m.Follow(w)
}

// Concurrency implements Caller.
func (p peer) Concurrency(*Exchange, int) int { return 2 }

// outcomeFilter sees outcomes.
type outcomeFilter struct{ OutcomeFilter }

// earlyFilter answers early.
type earlyFilter struct{ EarlyFilter }

// TestMessageHead: a head is final if no body can change what its caller gets: a failure of the checks, an answer of
// the route, or a service that refuses the request, unless a filter may respond in its place.
func TestMessageHead(t *testing.T) {
	onLoop(func(w *shard.Shard) {
		full := serviceOn(w, func(c *config.Service) { c.MaxPending = 0 })
		half := serviceOn(w, func(c *config.Service) { c.MaxPending = 1; c.Breaker.Consecutive = 0 })
		busy := serviceOn(w, func(c *config.Service) { c.MaxPending = 2; c.Breaker.Consecutive = 0 })
		if f := busy.Bounds.Pass(new(service.Passage), w.Loop.Now(), false, &Exchange{caller: peer{}}); f != nil {
			t.Fatal(f)
		}
		policy := race.Policy{Timeout: time.Second}
		for name, c := range map[string]struct {
			route   *Route
			final   bool
			refusal *fault.Failure // by the checks
			refused *fault.Failure // by the service

			batch bool          // the request says so
			due   time.Duration // from now on; 0 means that the caller has set no timeout
		}{
			"no route":           {final: true, refusal: fault.NoRoute},
			"an answer":          {route: &Route{Policy: policy, Answer: new(route.Answer)}, final: true},
			"room":               {route: &Route{Policy: policy, Service: half}},
			"no room":            {route: &Route{Policy: policy, Service: full}, final: true, refused: fault.Overloaded},
			"an early filter":    {route: &Route{Policy: policy, Service: full, early: earlyFilter{}}},
			"an outcome filter":  {route: &Route{Policy: policy, Service: full, outcomes: []OutcomeFilter{outcomeFilter{}}}},
			"no time left":       {route: &Route{Service: half}, final: true, refusal: fault.Deadline},
			"little time left":   {route: &Route{Policy: policy, Service: half}, due: 1},
			"over rate of route": {route: &Route{Policy: policy, Service: half, Rate: noTokens()}, final: true, refusal: fault.RateLimited},
			"half full":          {route: &Route{Policy: policy, Service: busy}},
			"half full, batch":   {route: &Route{Policy: policy, Service: busy}, batch: true, final: true, refused: fault.Overloaded},
			"a route of batch":   {route: &Route{Policy: policy, Service: busy, batch: true}, final: true, refused: fault.Overloaded},
		} {
			at := &Listener{}
			ex := &Exchange{message: message{shard: w}, caller: peer{at: at}}
			if ex.Request.Batch = c.batch; c.due != 0 {
				ex.Request.Deadline = w.Loop.Now() + c.due
			}
			if final := ex.Checks(at).MessageHead(c.route); final != c.final || ex.Refusal != c.refusal || ex.refused != c.refused || !ex.HeadChecked() || ex.Route != c.route {
				t.Errorf("%s: final %t, refused by the checks %v, by the service %v", name, final, ex.Refusal, ex.refused)
			}
		}
	})
}

// noTokens returns a rate limit whose bucket is empty.
func noTokens() *limit.Keyed {
	l := limit.NewKeyed(&config.RateLimit{Rate: 1})
	l.Take(0, nil)
	return l
}

// TestStreamTime: a stream has the time that its route and its caller give it, or without a route timeouts.idle.
func TestStreamTime(t *testing.T) {
	world := sim.New(1)
	world.Run(time.Second)
	onLoopOf(world, func(w *shard.Shard) {
		idle, now := w.Config.Timeouts.Idle, w.Loop.Now()
		for _, c := range []struct {
			route    *Route
			deadline time.Duration
			want     time.Duration
		}{
			{nil, 0, idle},
			{nil, now + time.Second, time.Second},
			{nil, now + 1, 1},
			{nil, now + 2*idle, idle},
			{&Route{Policy: race.Policy{Timeout: time.Minute}}, 0, time.Minute},
			{&Route{Policy: race.Policy{Timeout: time.Minute}}, now + time.Second, time.Second},
			{&Route{Policy: race.Policy{Timeout: time.Minute}}, now + time.Hour, time.Minute},
			{&Route{Policy: race.Policy{Timeout: time.Minute}}, -1, -1 - now},
		} {
			ex := &Exchange{message: message{shard: w}}
			ex.Route, ex.Request.Deadline = c.route, c.deadline
			if got := ex.StreamTimeLeft(); got != c.want {
				t.Errorf("%+v: %v left", c, got)
			}
			if late := ex.Checks(nil).InTime() == fault.Deadline; late != (c.want <= 0) {
				t.Errorf("%+v: too late %t", c, late)
			}
		}
		ex := &Exchange{message: message{shard: w}}
		if ex.Route = (&Route{}); ex.Checks(nil).InTime() != fault.Deadline {
			t.Error("a request with no time left is in time")
		}
	})
}

// TestTimeouts: the soonest timeout of a caller counts, from when the head of its request arrived.
func TestTimeouts(t *testing.T) {
	world := sim.New(1)
	world.Run(time.Second)
	onLoopOf(world, func(w *shard.Shard) {
		now := w.Loop.Now()
		for _, c := range []struct {
			arrived  time.Duration
			timeouts []time.Duration
			want     time.Duration
		}{
			{0, []time.Duration{time.Second}, now + time.Second},
			{0, []time.Duration{time.Second, 2 * time.Second}, now + time.Second},
			{0, []time.Duration{2 * time.Second, time.Second}, now + time.Second},
			{7, []time.Duration{time.Second}, 7 + time.Second},
			{0, []time.Duration{0}, -1},
			{7, []time.Duration{1}, 8},
			{0, []time.Duration{time.Second, -5}, -1},
			{7, []time.Duration{protocol.MaxTimeout + 1}, 7 + protocol.MaxTimeout},
		} {
			m := message{shard: w}
			m.Arrived = c.arrived
			for _, d := range c.timeouts {
				m.SetTimeout(d)
			}
			if m.Request.Deadline != c.want || !m.Request.Timed {
				t.Errorf("%+v: deadline %v", c, m.Request.Deadline)
			}
		}
	})
}

// TestLargest: the exchange that holds the most, and of equals that with the lowest id.
func TestLargest(t *testing.T) {
	of := func(id uint64, held int) *Exchange {
		ex := &Exchange{}
		ex.StreamID, ex.Held = id, held
		return ex
	}
	a, b, c, none := of(7, 10), of(3, 20), of(5, 20), of(1, 0)
	for _, all := range [][]*Exchange{{a, b, c, none}, {none, c, b, a}, {c, a, b}} {
		if ex, held := LargestOf(slices.Values(all)); ex != b || held != 20 {
			t.Errorf("%+v holds %d", ex, held)
		}
	}
	if ex, _ := LargestOf(slices.Values([]*Exchange{c, of(5, 20)})); ex != c {
		t.Error("of two with the same id the second is the largest")
	}
	if ex, held := LargestOf(slices.Values([]*Exchange{none})); ex != nil || held != 0 {
		t.Errorf("an exchange that holds nothing is the largest")
	}
}

// TestMeasured: what has a latency. A failure has none, unless the caller waited until a timeout.
func TestMeasured(t *testing.T) {
	for _, c := range []struct {
		result result
		want   bool
	}{
		{result{outcome: stats.Outcome2xx}, true}, {result{outcome: stats.Outcome4xx}, true}, {result{outcome: stats.Outcome5xx}, false},
		{result{outcome: stats.OutcomeCancelled}, false}, {result{outcome: stats.OutcomeFailed, failure: fault.Deadline}, true},
		{result{outcome: stats.OutcomeFailed, failure: fault.TryTimeout}, true}, {result{outcome: stats.OutcomeFailed, failure: fault.Connect}, false},
	} {
		if got := c.result.measured(); got != c.want {
			t.Errorf("%s: %t", c.result.outcome, got)
		}
	}
}

// TestRecorded: the millisecond of an end, and its service, count the response, its bytes, and its latency if it has one. A
// request whose caller has gone has no response, and a copy has none of this sidecar.
func TestRecorded(t *testing.T) {
	const latency = 3 * time.Millisecond
	for name, c := range map[string]struct {
		outcome  stats.Outcome
		status   int // of the response; 0 means none
		failure  *fault.Failure
		fallback string
		copied   bool

		answers  uint32
		measured bool
	}{
		"a response":                   {outcome: stats.Outcome2xx, status: 200, answers: 1, measured: true},
		"a bad response":               {outcome: stats.Outcome5xx, status: 500, answers: 1},
		"a response of the fallback":   {outcome: stats.Outcome2xx, status: 200, fallback: "5xx", answers: 1},
		"a failure":                    {outcome: stats.OutcomeFailed, failure: fault.Connect, answers: 1},
		"the deadline":                 {outcome: stats.OutcomeFailed, failure: fault.Deadline, answers: 1, measured: true},
		"the caller has gone":          {outcome: stats.OutcomeCancelled},
		"a response to a copy":         {outcome: stats.Outcome2xx, status: 200, copied: true, measured: true},
		"a copy that nobody waits for": {outcome: stats.OutcomeCancelled, copied: true},
	} {
		t.Run(name, func(t *testing.T) {
			onLoop(func(w *shard.Shard) {
				p, s := NewPool(w), serviceOn(w, func(*config.Service) {})
				ex, now := p.Exchange(peer{at: &Listener{Name: "in"}}), w.Loop.Now()
				ex.Route, ex.began, ex.copied, ex.Fallback.Reason = &Route{Service: s}, now-latency, c.copied, c.fallback
				r, bytes := &result{outcome: c.outcome, failure: c.failure}, 0
				if c.status != 0 {
					r.res = p.Response()
					r.res.Status, r.res.Body = c.status, []byte("body")
					bytes = r.res.Size()
				}
				r.record(ex)
				worst, count := time.Duration(0), uint64(0)
				if c.measured {
					count = 1
				}
				if c.measured && !c.copied {
					worst = latency
				}
				if c.answers == 0 {
					bytes = 0
				}
				if ms := w.Milliseconds.Now(now); uint32(ms.Answers) != c.answers || int(ms.BytesOut) != bytes || ms.Worst != worst {
					t.Errorf("the millisecond has %+v", ms)
				}
				if s.Stats.Outcomes[c.outcome] != 1 || s.Stats.Latency.Count() != count {
					t.Errorf("the service has the outcomes %v, %d latencies", s.Stats.Outcomes, s.Stats.Latency.Count())
				}
			})
		})
	}
}

// TestClientBehind: who a sidecar serves is the client that the sidecar has named. Other peers name nobody but themselves.
func TestClientBehind(t *testing.T) {
	named := []protocol.Header{{Name: []byte("x-forwarded-for"), Value: []byte("192.0.2.1, 192.0.2.2")}}
	for _, c := range []struct {
		sidecars bool
		headers  []protocol.Header
		want     netip.Addr
	}{
		{true, named, netip.MustParseAddr("192.0.2.2")},
		{true, nil, netip.Addr{}},
		{false, named, netip.Addr{}},
	} {
		ex := &Exchange{caller: peer{at: &Listener{Name: "in", Sidecars: c.sidecars}}}
		ex.Request.Headers = c.headers
		if got := ex.Client(); got.Listener != "in" || got.Addr != "10.0.0.1:1" || got.Behind != c.want {
			t.Errorf("a sidecar %t, %s: %+v, want %s", c.sidecars, c.headers, got, c.want)
		}
	}
}

// TestClip: a record has the beginning of a long text.
func TestClip(t *testing.T) {
	long := make([]byte, maxClip+1)
	for n, want := range map[int]int{0: 0, maxClip: maxClip, maxClip + 1: maxClip} {
		if got := clip(long[:n]); len(got) != want {
			t.Errorf("of %d bytes %d are left", n, len(got))
		}
	}
}

// TestRepeats: how often a stream may be sent again. One that is a hedge or retry itself, or that may not be sent twice, is not.
func TestRepeats(t *testing.T) {
	resets := func(on ...string) race.Policy {
		return race.NewPolicy(&config.Policy{Retry: config.Retry{Attempts: 2, On: on}}, 1)
	}
	get := protocol.Request{Method: []byte("GET")}
	with := func(change func(req *protocol.Request)) protocol.Request {
		req := get
		change(&req)
		return req
	}
	for name, c := range map[string]struct {
		route *Route
		req   protocol.Request
		want  int
	}{
		"GET":       {&Route{Policy: resets("reset")}, get, 2},
		"no resets": {&Route{Policy: resets("connect")}, get, 0},
		"a retry":   {&Route{Policy: resets("reset")}, with(func(req *protocol.Request) { req.Attempt = 1 }), 0},
		"a hedge":   {&Route{Policy: resets("reset")}, with(func(req *protocol.Request) { req.Hedge = true }), 0},
		"POST":      {&Route{Policy: resets("reset")}, with(func(req *protocol.Request) { req.Method = []byte("POST") }), 0},
		"a login":   {&Route{Policy: resets("reset")}, with(func(req *protocol.Request) { req.Login = true }), 0},
		"a copy":    {&Route{Policy: resets("reset"), once: true}, get, 0},
		"a call":    {&Route{Policy: resets("reset"), consent: newConsent([]string{"methods", "key"})}, with(func(req *protocol.Request) { req.Codec = dubbo.CodecHessian2 }), 0},
		"no DELETE": {&Route{Policy: resets("reset"), consent: newConsent([]string{"methods"})}, with(func(req *protocol.Request) { req.Method = []byte("POST") }), 0},
		"a DELETE":  {&Route{Policy: resets("reset"), consent: newConsent([]string{"methods"})}, with(func(req *protocol.Request) { req.Method = []byte("DELETE") }), 2},
	} {
		if got := c.route.Repeats(&c.req); got != c.want {
			t.Errorf("%s: %d times, want %d", name, got, c.want)
		}
	}
}

// TestMemoryKept: an exchange keeps its memory for the next request, unless it was unusually long.
func TestMemoryKept(t *testing.T) {
	onLoop(func(w *shard.Shard) {
		p := NewPool(w)
		for _, more := range []int{0, 1} {
			ex := p.Exchange(peer{})
			ex.Forwarded, ex.Path, ex.Edited = make([]byte, 0, maxForwarded+more), make([]byte, 0, maxRewritten+more), make([]byte, 0, maxEdited+more)
			ex.Request.Headers = make([]protocol.Header, 0, 64+more)
			ex.HeadBuffer = w.Buffers.GetRoom(1000)
			if ex.Charge(); ex.HeldByRequest() != protocol.HeldBy(ex.HeadBuffer, nil, ex.Request.Headers, nil) {
				t.Errorf("the request holds %d bytes", ex.HeldByRequest())
			}
			ex.ChargeHead(100)
			if held := ex.HeldByRequest(); held != 100 || w.Process.Budget.Held()+w.Uncounted != int64(ex.Held) {
				t.Errorf("the request holds %d bytes", held)
			}
			p.Recycle(ex)
			again := p.Exchange(peer{})
			if again != ex || (ex.Forwarded != nil) != (more == 0) || (ex.Path != nil) != (more == 0) || (ex.Edited != nil) != (more == 0) || (ex.Request.Headers != nil) != (more == 0) {
				t.Errorf("%d bytes more: kept %t, %t, %t, %t", more, ex.Forwarded != nil, ex.Path != nil, ex.Edited != nil, ex.Request.Headers != nil)
			}
			if ex.Held != 0 || ex.HeldByRequest() != 0 {
				t.Errorf("%d bytes are held", ex.Held)
			}
			if other := p.Exchange(peer{}); other == ex {
				t.Error("an exchange is taken twice")
			}
			p.Recycle(again)
		}
	})
}

// TestExchangesKept: a loop keeps maxFree exchanges for the next requests, and no more.
func TestExchangesKept(t *testing.T) {
	onLoop(func(w *shard.Shard) {
		p := NewPool(w)
		var all []*Exchange
		for range maxFree + 1 {
			all = append(all, p.Exchange(peer{}))
		}
		for _, ex := range all {
			p.Recycle(ex)
		}
		kept := map[*Exchange]bool{}
		for range all {
			kept[p.Exchange(peer{})] = true
		}
		if !kept[all[0]] || !kept[all[maxFree-1]] || kept[all[maxFree]] {
			t.Errorf("kept %t, %t, and beyond the bound %t", kept[all[0]], kept[all[maxFree-1]], kept[all[maxFree]])
		}
	})
}

// TestAnswerCharged: the answer of a route counts as memory until it is released.
func TestAnswerCharged(t *testing.T) {
	onLoop(func(w *shard.Shard) {
		p, before := NewPool(w), w.Process.Budget.Held()+w.Uncounted
		r := NewRoute(&route.Plan{Route: &config.Route{Respond: config.Respond{Status: 222, Body: "body"}}, Policy: &config.Policy{}}, nil)
		res := p.Answer(r.Answer, &protocol.Request{})
		if res.Status != 222 || res.Held == 0 {
			t.Errorf("status %d, %d bytes are held", res.Status, res.Held)
		}
		if res.Release(); w.Process.Budget.Held()+w.Uncounted != before {
			t.Error("memory is left")
		}
	})
}

// TestRulesOfPaths: rules are asked about the path that the client has sent, also if the route has rewritten it.
func TestRulesOfPaths(t *testing.T) {
	onLoop(func(w *shard.Shard) {
		at := &Listener{Allow: allow.NewSet("", &config.Allow{Enforce: true, Rules: []config.AllowRule{{Path: []string{"/open/*"}}}}, nil)}
		for _, c := range []struct {
			path, original string
			refused        bool
		}{{"/open/a", "", false}, {"/secret", "", true}, {"/open/a", "/secret", true}, {"/secret", "/open/a", false}} {
			ex := &Exchange{message: message{shard: w}, caller: peer{at: at}}
			if ex.Request.Method, ex.Request.Path = []byte("GET"), []byte(c.path); c.original != "" {
				ex.OriginalPath = []byte(c.original)
			}
			f := ex.Checks(at).message(&Route{Policy: race.Policy{Timeout: time.Second}}, w.Loop.Now())
			if (f == fault.NotAllowed) != c.refused {
				t.Errorf("%s, which was %q: %v", c.path, c.original, f)
			}
		}
	})
}

// TestKeys: a request may be sent twice for its key if it has one key, which is not empty.
func TestKeys(t *testing.T) {
	for _, c := range []struct {
		keys []string
		want bool
	}{
		{nil, false}, {[]string{"a"}, true}, {[]string{`"a"`}, true}, {[]string{""}, false}, {[]string{`""`}, false}, {[]string{"a", "a"}, false},
		{[]string{"a", "b", "c"}, false},
	} {
		req := protocol.Request{Headers: []protocol.Header{{Name: []byte("x"), Value: []byte("y")}}}
		for _, key := range c.keys {
			req.Headers = append(req.Headers, protocol.Header{Name: []byte("Idempotency-Key"), Value: []byte(key)})
		}
		if got := hasIdempotencyKey(&req); got != c.want {
			t.Errorf("%q: %t", c.keys, got)
		}
		if req.Codec = dubbo.CodecHessian2; hasIdempotencyKey(&req) || idempotentMethod(&req) {
			t.Errorf("%q: a call has a key or a method", c.keys)
		}
	}
}

// TestLimited: requests with the same key share a bucket. Those whose key is not known, or has no form, share one, too.
func TestLimited(t *testing.T) {
	of := func(path, header string) *protocol.Request {
		return &protocol.Request{Path: []byte(path), Headers: []protocol.Header{{Name: []byte("x-user"), Value: []byte(header)}}}
	}
	for key, requests := range map[string][]struct {
		req  *protocol.Request
		want bool // over the limit
	}{
		"":              {{of("/a", "1"), false}, {of("/b", "2"), true}, {nil, true}},
		"peer":          {{of("/a", "1"), false}, {of("/b", "2"), true}, {nil, true}},
		"path":          {{of("/a?x", "1"), false}, {of("/a?y", "2"), true}, {of("/x/..//a", "3"), true}, {of("/b", "1"), false}, {nil, false}, {of("/%zz", "1"), true}},
		"header x-user": {{of("/a", "1"), false}, {of("/b", "1"), true}, {of("/a", "2"), false}, {nil, false}, {nil, true}},
	} {
		l := limit.NewKeyed(&config.RateLimit{Rate: 1, Burst: 1, Key: key})
		for i, c := range requests {
			if got := limited(l, time.Hour, peer{}, c.req); got != c.want {
				t.Errorf("by %q: request %d is over the limit: %t", key, i, got)
			}
		}
	}
}

// TestPeersWithoutPorts: peers at addresses that are none of IP share a bucket for each.
func TestPeersWithoutPorts(t *testing.T) {
	l := limit.NewKeyed(&config.RateLimit{Rate: 1, Burst: 1, Key: "peer"})
	for i, c := range []struct {
		remote string
		want   bool
	}{
		{"unix:a", true}, {"unix:a", false}, {"unix:b", true}, {"10.0.0.1:1", true}, {"10.0.0.1:2", false}, {"[::ffff:10.0.0.1]:3", false}, {"10.0.0.2:1", true},
		{"[2001:db8::1]:1", true}, {"[2001:db8::2]:1", false}, {"[2001:db8:0:1::1]:1", true},
	} {
		if got := takeByPeer(l, time.Hour, c.remote); got != c.want {
			t.Errorf("request %d, of %s: %t", i, c.remote, got)
		}
	}
}

// ruleSets gives each plan the rules that its route names by its host.
type ruleSets map[string]*allow.Set

func (r ruleSets) RulesOf(plan *route.Plan) allow.Rules {
	return allow.Rules{Route: r[plan.Match.Path], Service: r[plan.Service]}
}
func (r ruleSets) RateOf(*route.Plan) *limit.Keyed { return nil }
func (r ruleSets) Guarded() bool                   { return true }

// TestGuards: which hosts meet rules that a request has not met. Rules that are not enforced do not count.
func TestGuards(t *testing.T) {
	rules := func(enforce bool) *allow.Set {
		return allow.NewSet("", &config.Allow{Enforce: enforce, Rules: []config.AllowRule{{Method: []string{"NONE"}}}}, nil)
	}
	cfg, err := config.Parse("test", []byte(`
listeners: [{name: in, address: "127.0.0.1:1", protocol: http}]
routes:
- {match: {host: named, path: /strict}, service: free}
- {match: {host: named, path: /watched}, service: free}
- {match: {host: split}, service: [{name: free}, {name: strict}]}
- {match: {host: after}, service: free}
- {match: {host: own, path: /other}, service: strict}
- {match: {host: all, path: /strict}, service: free}
- {match: {path: /any}, service: free}
- {match: {path: /watched}, service: free}
services:
  free: {discover: static, endpoints: ["127.0.0.1:2"]}
  strict: {discover: static, endpoints: ["127.0.0.1:3"]}`), func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	strict := rules(true)
	all := ruleSets{"/strict": strict, "/watched": rules(false), "/any": rules(true), "strict": rules(true)}
	onLoop(func(w *shard.Shard) {
		plans := route.Plans(cfg)
		services := map[string]*service.Service{
			"free": serviceOn(w, func(*config.Service) {}), "strict": serviceOn(w, func(*config.Service) {}),
		}
		r := Router{Rand: w.Rand, Filters: func(*route.Plan, map[string]*service.Service) []Filter { return nil }}
		route.Compare(plans, nil, func(string) bool { return true })
		r.Adopt(route.NewTable(plans), plans, services, all)
		met := func(host, path string) *Route {
			return r.Find(&protocol.Request{Method: []byte("GET"), Authority: []byte(host), Path: []byte(path)})
		}
		for _, c := range []struct {
			host string
			met  *Route
			want Guard
		}{
			{"named", nil, GuardedName},
			{"split", nil, GuardedName},
			{"after", nil, GuardedAll}, // the rules of split are none of its
			{"other", nil, GuardedAll},
			{"own", nil, GuardedName},
			{"own", met("own", "/other"), GuardedAll},
			{"other", met("other", "/any"), Unguarded},
			{"named", met("named", "/strict"), GuardedAll},
			{"all", met("named", "/strict"), GuardedAll},
			{"named", met("other", "/watched"), GuardedName},
		} {
			if got := r.GuardOf([]byte(c.host), c.met); got != c.want {
				t.Errorf("%s: %d, want %d", c.host, got, c.want)
			}
		}
		if r.TakesHost([]byte("x")) != true || !r.Guarded {
			t.Error("a route for all hosts takes none")
		}
		drawn := map[*Route]int{}
		for range 100 {
			drawn[met("split", "/")]++
		}
		if len(drawn) != 2 {
			t.Errorf("%d shares of a split are drawn", len(drawn))
		}
		for name, want := range map[string]int{"free": 7, "strict": 2} {
			if got := len(services[name].Routes); got != want {
				t.Errorf("service %s has %d routes, want %d", name, got, want)
			}
		}
		r.routes[0].HedgeRoute.Counts.HedgesWon = 5
		r.Adopt(route.NewTable(nil), nil, services, all)
		if n := services["free"].Counts().HedgesWon; n != 5 || len(services["free"].Routes) != 0 {
			t.Errorf("%d hedges have won once the routes are gone, %d are left", n, len(services["free"].Routes))
		}
	})
}

// reloads is a Router that adopts one configuration after another, and notes the filters that it makes.
type reloads struct {
	Router
	services map[string]*service.Service
	filters  map[string][]*storing // by the host of their route
	plans    []route.Plan          // in force
}

func newReloads(w *shard.Shard) *reloads {
	r := &reloads{services: map[string]*service.Service{"a": serviceOn(w, func(*config.Service) {})}, filters: map[string][]*storing{}}
	r.Router = Router{Rand: w.Rand, Filters: func(plan *route.Plan, _ map[string]*service.Service) []Filter {
		f, host := &storing{}, plan.Match.Host
		r.filters[host] = append(r.filters[host], f)
		return []Filter{f}
	}}
	return r
}

// reload adopts a configuration with these routes, which may lead to service a. So does a listener.
func (r *reloads) reload(t *testing.T, rules RuleSets, routes string) {
	t.Helper()
	cfg, err := config.Parse("test", []byte(`
listeners: [{name: in, address: "127.0.0.1:1", protocol: http}, {name: fixed, address: "127.0.0.1:2", protocol: http, service: a}]
services:
  a: {discover: static, endpoints: ["127.0.0.1:3"]}
routes:
`+routes), func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	plans := route.Plans(cfg)
	route.Compare(plans, r.plans, func(string) bool { return true })
	r.Adopt(route.NewTable(plans), plans, r.services, rules)
	r.plans = plans
}

// of returns the route of a host.
func (r *reloads) of(host string) *Route {
	return r.Find(&protocol.Request{Method: []byte("GET"), Authority: []byte(host), Path: []byte("/")})
}

// Routes before a reload and after it.
const (
	routesBefore = `
- {match: {host: changed}, service: a, timeout: 1s}
- {match: {host: same}, service: a}
- {match: {host: gone}, service: a}`
	routesAfter = `
- {match: {host: changed}, service: a, timeout: 2s}
- {match: {host: same}, service: a}`
)

// TestReloadKeepsRoutes: a route that a reload does not change stays as it is. A route whose policy alone changes keeps its latencies.
func TestReloadKeepsRoutes(t *testing.T) {
	onLoop(func(w *shard.Shard) {
		r := newReloads(w)
		r.reload(t, ruleSets{}, routesBefore)
		same, changed := r.of("same"), r.of("changed")
		for range 100 {
			changed.HedgeRoute.Latencies.Observe(0, 40*time.Millisecond, 0)
		}
		r.reload(t, ruleSets{}, routesAfter)
		if r.of("same") != same {
			t.Error("a route that is the same is made anew")
		}
		if now := r.of("changed"); now == changed || now.Timeout != 2*time.Second {
			t.Errorf("the route that has changed has the timeout %v", now.Timeout)
		}
		if known := r.of("changed").HedgeRoute.Latencies.Primaries.Distribution(0); known.Samples() != 100 {
			t.Errorf("a route whose policy has changed has %d latencies", known.Samples())
		}
		if r.of("gone") != nil {
			t.Error("a route is left that is gone")
		}
	})
}

// TestReloadRetiresFilters: the filters of a route that goes, or that changes, are retired. Other filters are not.
func TestReloadRetiresFilters(t *testing.T) {
	onLoop(func(w *shard.Shard) {
		r := newReloads(w)
		r.reload(t, ruleSets{}, routesBefore)
		r.reload(t, ruleSets{}, routesAfter)
		for host, want := range map[string][]int{"changed": {1, 0}, "same": {0}, "gone": {1}} {
			var got []int
			for _, f := range r.filters[host] {
				got = append(got, f.retired)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: filters are retired %d times, want %d", host, got, want)
			}
		}
	})
}

// TestRouteHasRules: a route has the rules and the rate limit of its plan.
func TestRouteHasRules(t *testing.T) {
	strict := allow.NewSet("", &config.Allow{Enforce: true, Rules: []config.AllowRule{{Method: []string{"NONE"}}}}, nil)
	for name, c := range map[string]struct {
		rules RuleSets
		want  *fault.Failure
	}{
		"none":         {ruleSets{}, nil},
		"rules":        {ruleSets{"": strict}, fault.NotAllowed},
		"a rate limit": {ratedSets{ruleSets{}, noTokens()}, fault.RateLimited},
	} {
		onLoop(func(w *shard.Shard) {
			r, at := newReloads(w), &Listener{}
			r.reload(t, c.rules, `- {match: {host: a}, service: a}`)
			ex := &Exchange{message: message{shard: w}, caller: peer{at: at}}
			if ex.Checks(at).MessageHead(r.of("a")); ex.Refusal != c.want {
				t.Errorf("%s: refused with %v, want %v", name, ex.Refusal, c.want)
			}
		})
	}
}

// TestRouteOfAnswer: a route that responds itself has no service, and no filters.
func TestRouteOfAnswer(t *testing.T) {
	onLoop(func(w *shard.Shard) {
		r := newReloads(w)
		r.reload(t, ruleSets{}, `- {match: {host: a}, respond: {status: 204}}`)
		if a := r.of("a"); a.Answer == nil || a.Service != nil || len(r.filters["a"]) > 0 {
			t.Errorf("answer %v, service %v, %d filters", a.Answer, a.Service, len(r.filters["a"]))
		}
	})
}

// TestFixedService: a listener with a fixed service has a route that no host leads to.
func TestFixedService(t *testing.T) {
	onLoop(func(w *shard.Shard) {
		r := newReloads(w)
		r.reload(t, ruleSets{}, `- {match: {host: a}, service: a}`)
		if fixed := r.Fixed["a"]; len(r.Fixed) != 1 || fixed == nil || fixed.Service != r.services["a"] || fixed == r.of("a") {
			t.Errorf("the routes of fixed services are %v", r.Fixed)
		}
	})
}

// ratedSets is ruleSets with a rate limit of all routes.
type ratedSets struct {
	ruleSets
	rate *limit.Keyed
}

func (r ratedSets) RateOf(*route.Plan) *limit.Keyed { return r.rate }

// TestShadowsBounded: a loop watches 1,024 routes in mode shadow at a time. Routes that are gone make room for others.
func TestShadowsBounded(t *testing.T) {
	const most = 1024 // that package forecast watches
	onLoop(func(w *shard.Shard) {
		services := map[string]*service.Service{"s": serviceOn(w, func(*config.Service) {})}
		policy := config.DefaultService("s").Policy
		plans := make([]route.Plan, most+2)
		for i := range plans {
			of := policy
			if of.Hedge.Mode = config.HedgeShadow; i == 0 {
				of.Hedge.Mode = config.HedgeOff
			}
			plans[i] = route.Plan{Index: i, Match: &config.Match{}, Route: &config.Route{}, Policy: &of, Service: "s", Before: -1}
		}
		r := Router{Rand: w.Rand, Filters: func(*route.Plan, map[string]*service.Service) []Filter { return nil }}
		for range 2 {
			r.Adopt(route.NewTable(plans), plans, services, ruleSets{})
			watched := 0
			for _, made := range r.routes[1:] {
				var one hedge.Watch
				if made.HedgeRoute.Shadow.Begin(&one); one.Hedgeable {
					watched++
				}
			}
			if watched != most {
				t.Errorf("%d of %d routes are watched", watched, most+1)
			}
			r.Adopt(route.NewTable(nil), nil, services, ruleSets{})
		}
	})
}
