package exchange

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/route"
	"github.com/remora-proxy/remora/proxy/service"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/sim"
	"github.com/remora-proxy/remora/proxy/telemetry/accesslog"
	"github.com/remora-proxy/remora/proxy/telemetry/trace"
	"github.com/remora-proxy/remora/registry"
)

// scriptedExchange is an exchange whose caller, filters and endpoint do what a script says. It notes what they see.
type scriptedExchange struct {
	Caller // what no script asks for
	t      *testing.T
	world  *sim.World
	loop   *sim.Loop
	shard  *shard.Shard
	pool   *Pool
	svc    *service.Service
	route  *Route // nil means none
	at     Listener
	log    string            // path of the access log
	lines  *accesslog.Writer // of the log
	rules  config.AccessLog
	queue  *accesslog.Queue
	text   strings.Builder // of the process
	events []string

	ex       *Exchange
	attempts []*race.Attempt
	current  *race.Attempt      // that steps are of
	lingers  bool               // endpoints may still work on attempts that are cancelled
	refuses  *fault.Failure     // why the caller can't have the response; nil means that it can
	other    slot               // of the service
	share    bool               // the connection holds more than its share
	held     *Exchange          // by a filter
	reads    bool               // the caller reads streams until a step closes them
	body     *race.StreamSource // of the latest stream
	others   int                // bytes of memory that others hold
}

// slot is a slot of the service that another request has.
type slot struct{ service.Place }

func (*slot) Granted(time.Duration) {}

// newScriptedExchange returns what a request needs, with changed settings of its service.
func newScriptedExchange(t *testing.T, change func(c *config.Service)) *scriptedExchange {
	t.Helper()
	s := &scriptedExchange{t: t, world: sim.New(1), at: Listener{Name: "in", Protocol: "http"}, log: filepath.Join(t.TempDir(), "log")}
	s.loop = s.world.Loop("a")
	s.do(func() {
		cfg := config.Default()
		cfg.Tracing.Endpoint, cfg.Tracing.Sample = "http://192.0.2.1", 0
		cfg.AccessLog.Format = "{time} {stream} {fault} {cache} {header x-tier} {listener} {client} {protocol} {method} {authority} {path} {request_id} {trace_id} {service} {endpoint} {outcome} {status} {grpc_status} {error} {fallback}, {bytes_in} in, {bytes_out} out, {attempts} attempts, after {duration_ms}"
		wall := func() time.Time { return time.Unix(0, 0).UTC().Add(s.loop.Now()) }
		s.shard = shard.New(&shard.Process{Loops: 1, Sink: s, WallClock: wall}, 0, s.loop, slog.New(slog.NewTextHandler(&s.text, nil)), 1)
		s.shard.Process.Budget.Configure(&cfg.Limits)
		s.shard.Configure(cfg)
		s.shard.Shedding.Do = func() {}
		s.rules, s.queue = cfg.AccessLog, accesslog.NewQueue(1<<20, 1, new(accesslog.Counts))
		s.shard.AccessLog.Configure(&s.rules, s.queue)
		var err error
		if s.lines, err = accesslog.Open(s.log, s.queue, nil); err != nil {
			t.Fatal(err)
		}
		s.pool = NewPool(s.shard)
		s.other.Init(&s.other)
		s.svc, s.route = s.service("s", "192.0.2.1:1", change)
	})
	s.world.Run(time.Millisecond)
	return s
}

// service returns a service with an endpoint, and a route to the service.
func (s *scriptedExchange) service(name, addr string, change func(c *config.Service)) (*service.Service, *Route) {
	c := config.DefaultService(name)
	c.Protocol, c.Policy.Timeout, c.Policy.Hedge.Mode, c.Probe, c.Breaker.Consecutive = "app", time.Second, config.HedgeOff, config.ProbeOff, 0
	change(c)
	m := service.NewMember(c, service.Member{}, 1)
	m.LimitSlots()
	m.Prepare(s.shard, "", service.Protocols{"app": {Connector: race.ConnectBy(func(*service.Service, *service.Endpoint) race.Upstream { return scriptedEndpoint{s} })}})
	svc := m.Follow(s.shard)
	endpoints := []registry.Endpoint{{Addr: addr, Weight: 1}}
	if c.Policy.Hedge.Mode == config.HedgeOn { // a hedge needs another endpoint
		endpoints = append(endpoints, registry.Endpoint{Addr: "192.0.2.3:1", Weight: 1})
	}
	m.Update(registry.NewSnapshot(name, registry.SourceLive, time.Time{}, endpoints), "")
	return svc, NewRoute(&route.Plan{Match: &config.Match{}, Route: &config.Route{}, Policy: &c.Policy}, svc)
}

func (s *scriptedExchange) do(f func()) { s.loop.Do(f) }

func (s *scriptedExchange) note(f string, v ...any) {
	s.events = append(s.events, fmt.Sprintf(f, v...))
}

// request makes the request.
func (s *scriptedExchange) request() {
	ex := s.pool.Exchange(s)
	ex.HeadBuffer = s.shard.Buffers.GetRoom(100)
	ex.HeadBuffer.B = append(ex.HeadBuffer.B, "GET /path?query"...)
	req := &ex.Request
	req.Method, req.Path, req.Authority = ex.HeadBuffer.B[:3], ex.HeadBuffer.B[4:], []byte("host")
	s.ex, ex.StreamID = ex, 7
	ex.Charge()
}

func (s *scriptedExchange) Listener() *Listener                   { return &s.at }
func (s *scriptedExchange) RemoteAddr() string                    { return "10.0.0.1:1" }
func (s *scriptedExchange) OverShare(*Exchange) bool              { return s.share }
func (s *scriptedExchange) Concurrency(*Exchange, int) int        { return 1 }
func (s *scriptedExchange) Started(*Exchange)                     { s.note("started") }
func (s *scriptedExchange) Interim(*Exchange, *protocol.Response) { s.note("interim") }

func (s *scriptedExchange) Encode(_ *Exchange, res *race.Response) *fault.Failure {
	s.note("encode %d", res.Status)
	return s.refuses
}

func (s *scriptedExchange) Respond(ex *Exchange, res *race.Response) {
	text := fmt.Sprintf("respond %d, %d pending", res.Status, s.svc.Shared.InFlight())
	if src := res.TakeSource(); src != nil {
		text += fmt.Sprintf(", a stream, a call %t", src.Stream.Call())
		if s.body = src; !s.reads {
			src.Close()
		}
	}
	for _, h := range res.Headers {
		text += fmt.Sprintf(", %s", h.Name)
	}
	if s.note("%s", text); ex.StreamID != 7 {
		s.t.Error("the exchange has lost its id")
	}
	res.Release()
}

func (s *scriptedExchange) Fail(ex *Exchange, f *fault.Failure) {
	if s.note("fail %s, %d pending", f.Code, s.svc.Shared.InFlight()); ex.StreamID != 7 {
		s.t.Error("the exchange has lost its id")
	}
}

func (s *scriptedExchange) Finished(ex *Exchange, how race.Ended) {
	if s.note("finished, %s, %d pending", [...]string{"withdrawn", "presumed", "responded"}[how], s.svc.Shared.InFlight()); ex.StreamID != 7 {
		s.t.Error("the exchange has lost its id")
	}
}

// Put implements trace.Sink.
func (s *scriptedExchange) Put(r *trace.Record) {
	if r.Zero != 0 {
		s.note("the loop's clock was 0 at second %d", r.Zero/int64(time.Second))
	}
	sent, outcomes := 0, ""
	for i := range r.Attempts {
		if r.Attempts[i].Endpoint != "" {
			sent++
			outcomes += fmt.Sprintf(", %s %d", r.Attempts[i].Outcome, r.Attempts[i].Status)
		}
	}
	s.note("span of %s, RPC %t, %s %s %s, id %s, service %s: %d %q, call %t %s, %d ms, %d attempts, of the caller's trace %t, its parent %t%s",
		r.Protocol, r.RPC, r.Method, r.Path, r.Authority, r.RequestID, r.Service, r.Status, r.Error, r.GRPC.Known, r.GRPC.Code,
		(r.Ended-r.Began).Round(time.Millisecond)/time.Millisecond, sent, r.Trace[0] == 0x4b, r.Parent[1] == 0xf0, outcomes)
}

// scriptedEndpoint is the Upstream of the endpoint, and the Carrier of its attempts.
type scriptedEndpoint struct{ *scriptedExchange }

func (scriptedEndpoint) Retire()                                   {}
func (scriptedEndpoint) Connections() int                          { return 0 }
func (scriptedEndpoint) Largest() (held, each int, h shard.Holder) { return 0, 0, nil }
func (scriptedEndpoint) Buffered(*race.Attempt) int                { return 10 }
func (e scriptedEndpoint) Abort(a *race.Attempt)                   { e.note("abort %d", e.indexOf(a)) }

func (e scriptedEndpoint) Cancel(a *race.Attempt) bool {
	e.note("cancel %d", e.indexOf(a))
	return e.lingers
}

// indexOf returns the number of an attempt, from 0. Later requests use the memory of attempts again, so the search is backwards.
func (e scriptedEndpoint) indexOf(a *race.Attempt) int {
	for i, other := range slices.Backward(e.attempts) {
		if other == a {
			return i
		}
	}
	e.t.Error("an attempt ends that was not sent")
	return -1
}

func (e scriptedEndpoint) Send(a *race.Attempt) {
	req := a.Outgoing().Request()
	e.note("send, service %s, idempotent %t, alone %t, batch %t, due in %d ms", req.Service, req.Idempotent, req.Alone, req.Batch, a.Outgoing().TimeLeft().Round(time.Millisecond)/time.Millisecond)
	text := ""
	for _, h := range req.Headers {
		text += " " + string(h.Name)
	}
	if text != "" {
		e.note("with%s", text)
	}
	if req.Hedge || req.Tied {
		e.note("hedge %t, tied %t", req.Hedge, req.Tied)
	}
	e.attempts, e.current = append(e.attempts, a), a
	a.Carry(e, 1)
}
