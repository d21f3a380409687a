package exchange

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/route"
	"github.com/remora-proxy/remora/proxy/service"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/sim"
	"github.com/remora-proxy/remora/proxy/telemetry/accesslog"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
	"github.com/remora-proxy/remora/proxy/telemetry/trace"
	"github.com/remora-proxy/remora/registry"
)

// life is the life of one request, whose caller, filters and endpoints do what a script says. It notes what they are told.
type life struct {
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
	text   strings.Builder   // of the process
	events []string

	ex       *Exchange
	attempts []*race.Attempt
	lingers  bool           // endpoints may still work on attempts that are cancelled
	refuses  *fault.Failure // why the caller can't have the response; nil means that it can
	other    slot           // of the service
	share    bool           // the connection holds more than its share
	held     *Exchange      // by a filter
	others   int            // bytes of memory that others hold
}

// slot is a slot of the service that another request has.
type slot struct{ service.Place }

func (*slot) Granted(time.Duration) {}

// newLife returns what a request needs, with changed settings of its service.
func newLife(t *testing.T, change func(c *config.Service)) *life {
	t.Helper()
	l := &life{t: t, world: sim.New(1), at: Listener{Name: "in", Protocol: "http"}, log: filepath.Join(t.TempDir(), "log")}
	l.loop = l.world.Loop("a")
	l.do(func() {
		cfg := config.Default()
		cfg.Tracing.Endpoint, cfg.Tracing.Sample = "http://192.0.2.1", 0
		cfg.AccessLog.Format = "{time} {stream} {fault} {cache} {header x-tier} {listener} {client} {protocol} {method} {authority} {path} {request_id} {trace_id} {service} {endpoint} {outcome} {status} {grpc_status} {error} {fallback}, {bytes_in} in, {bytes_out} out, {attempts} attempts, after {duration_ms}"
		wall := func() time.Time { return time.Unix(0, 0).UTC().Add(l.loop.Now()) }
		l.shard = shard.New(&shard.Process{Loops: 1, Sink: l, WallClock: wall}, 0, l.loop, slog.New(slog.NewTextHandler(&l.text, nil)), 1)
		l.shard.Process.Budget.Configure(&cfg.Limits)
		l.shard.Configure(cfg)
		l.shard.Shedding.Do = func() {}
		q := accesslog.NewQueue(1<<20, 1, new(accesslog.Counts))
		l.shard.AccessLog.Configure(&cfg.AccessLog, q)
		var err error
		if l.lines, err = accesslog.Open(l.log, q, nil); err != nil {
			t.Fatal(err)
		}
		c := config.DefaultService("s")
		c.Protocol, c.Policy.Timeout, c.Policy.Hedge.Mode, c.Probe, c.Breaker.Consecutive = "app", time.Second, config.HedgeOff, config.ProbeOff, 0
		change(c)
		m := service.NewMember(c, service.Member{}, 1)
		m.LimitSlots()
		m.Prepare(l.shard, "", service.Protocols{"app": {Connector: race.ConnectBy(func(*service.Service, *service.Endpoint) race.Upstream { return told{l} })}})
		l.svc = m.Follow(l.shard)
		m.Update(registry.NewSnapshot("s", registry.SourceLive, time.Time{}, []registry.Endpoint{{Addr: "192.0.2.1:1", Weight: 1}}), "")
		l.pool = NewPool(l.shard)
		l.other.Init(&l.other)
		l.route = NewRoute(&route.Plan{Match: &config.Match{}, Route: &config.Route{}, Policy: &c.Policy}, l.svc)
	})
	l.world.Run(time.Millisecond)
	return l
}

func (l *life) do(f func()) { l.loop.Do(f) }

func (l *life) note(f string, v ...any) { l.events = append(l.events, fmt.Sprintf(f, v...)) }

// request makes the request.
func (l *life) request() {
	ex := l.pool.Exchange(l)
	ex.HeadBuffer = l.shard.Buffers.GetRoom(100)
	ex.HeadBuffer.B = append(ex.HeadBuffer.B, "GET /path?query"...)
	req := &ex.Request
	req.Method, req.Path, req.Authority = ex.HeadBuffer.B[:3], ex.HeadBuffer.B[4:], []byte("host")
	l.ex, ex.StreamID = ex, 7
	ex.Charge()
}

// play takes the steps of a script, which are separated by semicolons.
func (l *life) play(script string) {
	l.t.Helper()
	for step := range strings.SplitSeq(script, "; ") {
		words := append(strings.Fields(step), "", "")
		arg := words[1]
		if words[0] == "run" {
			d, err := time.ParseDuration(arg)
			if err != nil {
				l.t.Fatal(err)
			}
			l.world.Run(d)
			continue
		}
		n, _ := strconv.Atoi(arg)
		l.do(func() {
			switch words[0] {
			case "begin":
				l.ex.Begin(l.route, &l.at)
			case "respond", "call": // "call" is the response to a gRPC call
				last := l.attempts[len(l.attempts)-1]
				status := n
				if words[0] == "call" {
					status = 200
				}
				res := l.response(status)
				if words[0] == "call" {
					res.Headers = append(res.Headers, protocol.Header{Name: []byte("grpc-status"), Value: []byte(arg)})
				}
				last.Respond(res)
			case "fail":
				l.attempts[len(l.attempts)-1].Fail(failureOf(arg))
			case "finish":
				l.attempts[0].Finish(true)
			case "presume":
				l.attempts[0].Presume()
			case "leave":
				l.note("leaves; attempts are left: %t", l.ex.Cancel())
			case "shed":
				l.ex.Shed()
			case "abandon":
				l.ex.AbandonNow()
			case "resume":
				l.held.Resume()
			case "refuse":
				l.held.Refuse(failureOf(arg))
			case "answer":
				l.held.Answer(l.response(n))
			case "stream": // a response whose body goes on, in n bytes
				last := l.attempts[len(l.attempts)-1]
				res := l.response(200)
				res.Source = &race.StreamSource{Buffer: protocol.Unowned().GetRoom(100), Stream: last.NewStream()}
				res.Source.Buffer.B = append(res.Source.Buffer.B, "body"...)
				res.Charge()
				last.Respond(res)
			case "borrow": // a response that has lines in place of headers
				res := l.pool.Response()
				res.Borrow(200, []byte("A: b\r\n"), []byte("body"), nil, false)
				l.attempts[len(l.attempts)-1].Respond(res)
			case "interim":
				l.attempts[0].Interim(&protocol.Response{Status: 103})
			case "await":
				l.note("awaits its start: %t", l.ex.AwaitStart())
			case "untie":
				l.ex.Untie()
			case "free": // the slot of another request
				l.svc.Admission.GiveBack(&l.other.Place)
			case "open":
				l.note("open %t, may have been processed %t", l.ex.Open(), l.ex.MaybeProcessed())
			default:
				l.t.Fatalf("no step %q", words[0])
			}
		})
	}
	l.world.Run(2 * time.Millisecond) // what was posted; the millisecond of the end is counted then
}

func failureOf(code string) *fault.Failure {
	for _, f := range []*fault.Failure{fault.Reset, fault.Connect, fault.Injected, fault.Malformed, fault.Overloaded} {
		if f.Code == code {
			return f
		}
	}
	return nil
}

// response returns a response that an application or a filter may give.
func (l *life) response(status int) *race.Response {
	res := l.pool.Response()
	res.Status, res.HeadBuffer = status, l.shard.Buffers.GetRoom(100)
	res.HeadBuffer.B = append(res.HeadBuffer.B, "12345"...)
	res.Charge()
	return res
}

func (l *life) Listener() *Listener                   { return &l.at }
func (l *life) RemoteAddr() string                    { return "10.0.0.1:1" }
func (l *life) OverShare(*Exchange) bool              { return l.share }
func (l *life) Concurrency(*Exchange, int) int        { return 1 }
func (l *life) Started(*Exchange)                     { l.note("started") }
func (l *life) Interim(*Exchange, *protocol.Response) { l.note("interim") }

func (l *life) Encode(_ *Exchange, res *race.Response) *fault.Failure {
	l.note("encode %d", res.Status)
	return l.refuses
}

func (l *life) Respond(ex *Exchange, res *race.Response) {
	text := fmt.Sprintf("respond %d, %d pending", res.Status, l.svc.Shared.InFlight())
	if src := res.TakeSource(); src != nil {
		text += fmt.Sprintf(", a stream, a call %t", src.Stream.Call())
		src.Close()
	}
	for _, h := range res.Headers {
		text += fmt.Sprintf(", %s", h.Name)
	}
	if l.note("%s", text); ex.StreamID != 7 {
		l.t.Error("the exchange has lost its id")
	}
	res.Release()
}

func (l *life) Fail(ex *Exchange, f *fault.Failure) {
	if l.note("fail %s, %d pending", f.Code, l.svc.Shared.InFlight()); ex.StreamID != 7 {
		l.t.Error("the exchange has lost its id")
	}
}

func (l *life) Finished(ex *Exchange, how race.Ended) {
	if l.note("finished %d, %d pending", how, l.svc.Shared.InFlight()); ex.StreamID != 7 {
		l.t.Error("the exchange has lost its id")
	}
}

// Put implements trace.Sink.
func (l *life) Put(r *trace.Record) {
	sent := 0
	for i := range r.Attempts {
		if r.Attempts[i].Endpoint != "" {
			sent++
		}
	}
	if r.Zero != 0 {
		l.note("the loop's clock was 0 at %d", r.Zero)
	}
	outcomes := ""
	for i := range r.Attempts {
		if r.Attempts[i].Endpoint != "" {
			outcomes += fmt.Sprintf(", %s %d", r.Attempts[i].Outcome, r.Attempts[i].Status)
		}
	}
	l.note("span of %s, RPC %t, %s %s %s, id %s, service %s: %d %q, call %t %s, %d ms, %d attempts, of the caller's trace %t, its parent %t%s",
		r.Protocol, r.RPC, r.Method, r.Path, r.Authority, r.RequestID, r.Service, r.Status, r.Error, r.GRPC.Known, r.GRPC.Code,
		(r.Ended-r.Began).Round(time.Millisecond)/time.Millisecond, sent, r.Trace[0] == 0x4b, r.Parent[1] == 0xf0, outcomes)
}

// told is the Upstream of the endpoint, and the Carrier of its attempts.
type told struct{ *life }

func (told) Retire()                                   {}
func (told) Connections() int                          { return 0 }
func (told) Largest() (held, each int, h shard.Holder) { return 0, 0, nil }
func (told) Buffered(*race.Attempt) int                { return 0 }
func (e told) Abort(*race.Attempt)                     { e.note("abort") }

func (e told) Cancel(*race.Attempt) bool {
	e.note("cancel")
	return e.lingers
}

func (e told) Send(a *race.Attempt) {
	req := a.Outgoing().Request()
	e.note("send, service %s, idempotent %t, alone %t, batch %t, due in %d ms", req.Service, req.Idempotent, req.Alone, req.Batch, a.Outgoing().TimeLeft().Round(time.Millisecond)/time.Millisecond)
	text := ""
	for _, h := range req.Headers {
		text += " " + string(h.Name)
	}
	if text != "" {
		e.note("with%s", text)
	}
	e.attempts = append(e.attempts, a)
	a.Carry(e, 1)
}

// phase is a filter that does what its name says.
type phase struct {
	*life
	name string
}

func (p phase) Retire()       {}
func (p phase) End(*Exchange) { p.note("end of %s", p.name) }

func (p phase) Request(ex *Exchange) Next {
	p.note("request to %s", p.name)
	switch p.held = ex; p.name {
	case "holding":
		return Wait
	case "refusing":
		ex.Refuse(fault.Injected)
		return Decided
	case "answering":
		ex.Answer(p.response(203))
		return Decided
	}
	return Continue
}

// outcomes is a phase that sees outcomes.
type outcomes struct{ phase }

func (o outcomes) Response(ex *Exchange, res *race.Response) *race.Response {
	o.note("response %d to %s, %d headers", res.Status, o.name, len(res.Headers))
	switch o.held = ex; o.name {
	case "replacing":
		res.Release()
		return o.response(299)
	case "keeping":
		res.Release()
		return nil
	}
	return res
}

func (o outcomes) Failure(ex *Exchange, f *fault.Failure) Next {
	o.note("failure %s to %s", f.Code, o.name)
	switch o.held = ex; o.name {
	case "replacing":
		ex.Fallback = Fallback{Reason: config.FallbackReasons[0], Code: f.Code}
		ex.Answer(o.response(299))
		return Decided
	case "keeping":
		return Wait
	}
	return Continue
}

// early is a phase that answers early.
type early struct{ phase }

func (e early) Early(ex *Exchange) bool {
	e.note("early")
	if e.name == "early" {
		return false
	}
	ex.Answer(e.response(204))
	return true
}

// String returns what was noted and counted.
func (l *life) String() (s string) {
	l.do(func() {
		l.shard.AccessLog.Flush()
		if err := l.lines.Close(l.t.Context()); err != nil {
			l.t.Fatal(err)
		}
		line := strings.TrimSpace(string(must.ReadFile(l.t, l.log)))
		if text, after, ok := strings.Cut(line, "after "); ok {
			ms, err := strconv.ParseFloat(after, 64)
			if err != nil {
				l.t.Fatal(err)
			}
			line = fmt.Sprintf("%safter %.0f ms", text, ms)
		}
		if at, rest, ok := strings.Cut(line, " "); ok {
			t, err := time.Parse(time.RFC3339Nano, at)
			if err != nil {
				l.t.Fatal(err)
			}
			line = fmt.Sprintf("%d ms %s", t.Round(time.Millisecond).UnixMilli(), rest)
		}
		if line == "" {
			line = "no line"
		}
		for text := range strings.Lines(l.text.String()) {
			_, text, _ = strings.Cut(strings.TrimSpace(text), "level=")
			l.note("log: %s", text)
		}
		s = strings.Join(append(l.events, line, l.counts()), "\n")
	})
	return s
}

// counts returns the counts that are not 0.
func (l *life) counts() string {
	var all []string
	add := func(name string, n int) {
		if n != 0 {
			all = append(all, fmt.Sprintf("%s %d", name, n))
		}
	}
	w := &l.shard.Stats
	add("requests", int(w.Requests))
	add("answers", int(w.Responses))
	for key, n := range w.Errors {
		add(key.Listener+" "+key.Code, int(n))
	}
	for listener, n := range w.Unrouted {
		add("unrouted of "+listener, int(n))
	}
	c := l.svc.Counts()
	add("service", int(c.Requests))
	for o, n := range c.Outcomes {
		add(stats.Outcome(o).String(), int(n))
	}
	for o, n := range c.Batch {
		add("batch "+stats.Outcome(o).String(), int(n))
	}
	for code, n := range c.GRPC {
		add("call "+protocol.GRPCCode(code).String(), int(n))
	}
	add("latencies", int(c.Latency.Count()))
	add("in", int(c.BytesIn))
	add("out", int(c.BytesOut))
	add("breaker", int(l.svc.Report(stats.Counters).Breaker))
	var sum stats.Millisecond
	for _, ms := range l.shard.Milliseconds.Since(0, l.loop.Now()).List {
		sum.Add(&ms)
	}
	add("arrivals", int(sum.Arrivals))
	add("of bytes", int(sum.BytesIn))
	add("responses", int(sum.Answers))
	add("of bytes", int(sum.BytesOut))
	add("worst ms", int(sum.Worst.Round(time.Millisecond)/time.Millisecond))
	return strings.Join(all, ", ")
}

// checkEnd checks that nothing is left of the request.
func (l *life) checkEnd() {
	l.t.Helper()
	l.do(func() {
		l.shard.Recount(&l.others, 0)
		if n := l.svc.Shared.InFlight(); n != 0 || l.shard.Uncounted != 0 || l.shard.Process.Budget.Held() != 0 {
			l.t.Errorf("%d requests and %d bytes are left", n, l.shard.Uncounted)
		}
		if l.ex.deadline.Armed() {
			l.t.Error("the deadline is armed")
		}
		next := l.pool.Exchange(l)
		if next != l.ex {
			l.t.Error("the exchange is not used again")
		}
		if next.StreamID != 0 || next.Route != nil || next.Refusal != nil || next.batch || next.Held != 0 || next.race.Launched != 0 || next.session.pin != nil || next.HeadBuffer != nil || next.BodyBuffer != nil || next.Request.Method != nil || next.Request.Tied || len(next.newCookie) != 0 {
			l.t.Errorf("something is left for the next request: %+v", next.passing)
		}
		l.pool.Recycle(next)
	})
}
