package race

import (
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/hedge/histogram"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/service"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/sim"
	"github.com/remora-proxy/remora/proxy/telemetry/accesslog"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
	"github.com/remora-proxy/remora/proxy/telemetry/trace"
	"github.com/remora-proxy/remora/registry"
)

// bout is a race of a request whose endpoints do what a script says. It notes what they and the owner of the race are told.
type bout struct {
	t      *testing.T
	world  *sim.World
	loop   *sim.Loop
	shard  *shard.Shard
	svc    *service.Service
	policy Policy
	req    protocol.Request
	race   Race
	began  time.Duration
	events []string

	other   place           // holds a slot of the service
	before  *Stream         // that was opened before stream
	stream  *Stream         // of the response, or the one that was opened
	addrs   []string        // that were picked for the stream
	source  *StreamSource   // of the response
	lingers bool            // endpoints may still work on attempts that are cancelled
	tells   bool            // endpoints tell when attempts start
	grpc    bool            // the request is a gRPC call
	passage service.Passage // of the request
	decided bool            // the owner has its outcome
}

// place is a place of the service that no attempt of the race has.
type place struct{ service.Place }

func (*place) Granted(time.Duration) {}

// newBout returns a race at so many endpoints of a service with changed settings.
func newBout(t *testing.T, endpoints int, change func(c *config.Service)) *bout {
	t.Helper()
	b := &bout{t: t, world: sim.New(1)}
	b.loop = b.world.Loop("a")
	b.do(func() {
		cfg := config.Default()
		b.shard = shard.New(&shard.Process{Loops: 1}, 0, b.loop, slog.New(slog.DiscardHandler), 1)
		b.shard.Process.Budget.Configure(&cfg.Limits)
		b.shard.Configure(cfg)
		c := config.DefaultService("s")
		c.Policy.Timeout, c.Probe, c.Breaker.Consecutive = time.Second, config.ProbeOff, 0
		c.Policy.Hedge.Mode, c.Policy.Hedge.Class = config.HedgeOff, config.ClassNone
		c.Protocol = config.ProtocolHTTP
		change(c)
		m := service.NewMember(c, service.Member{}, 1)
		m.LimitSlots()
		m.Prepare(b.shard, "", service.Protocols{
			"": b.protocol(service.StreamPlain), config.ProtocolLink: b.protocol(service.StreamLink),
			config.ProtocolDubbo: b.protocol(service.StreamNone), config.ProtocolHTTP2: b.protocol(service.StreamPipe),
		})
		b.svc = m.Follow(b.shard)
		b.policy = NewPolicy(&c.Policy, 1)
		b.svc.Routes = []service.HedgedRoute{{Route: b.policy.HedgeRoute}}
		var list []registry.Endpoint
		for i := range endpoints {
			list = append(list, registry.Endpoint{Addr: fmt.Sprintf("10.0.0.%d:1", i+1), Weight: 1})
		}
		m.Update(registry.NewSnapshot("s", registry.SourceLive, time.Time{}, list), "")
		b.other.Init(&b.other)
		b.race.Init(b.shard, &Responses{Shard: b.shard}, b, &b.req)
	})
	b.world.Run(time.Millisecond)
	return b
}

// protocol returns how streams reach endpoints of a protocol.
func (b *bout) protocol(access service.StreamAccess) service.Protocol {
	connect := func(_ *service.Service, e *service.Endpoint) Upstream { return site{b, e.LB} }
	return service.Protocol{Streams: access, Connector: ConnectBy(connect)}
}

func (b *bout) do(f func()) { b.loop.Do(f) }

func (b *bout) note(f string, v ...any) {
	b.events = append(b.events, fmt.Sprintf("%d ms: ", (b.loop.Now()-b.began).Round(time.Millisecond)/time.Millisecond)+fmt.Sprintf(f, v...))
}

// start begins the race of the request.
func (b *bout) start(change func(e *Entry)) {
	b.decided, b.events, b.addrs = false, nil, nil
	b.do(func() {
		b.began = b.loop.Now()
		b.race.Traced = &Traced{Record: trace.Record{Attempts: make([]trace.Attempt, MaxAttempts)}}
		b.req = protocol.Request{Method: []byte("GET"), Idempotent: true}
		b.req.Deadline = b.began + b.policy.Timeout
		b.race.Entry = Entry{Service: b.svc, Policy: &b.policy, Bytes: 10}
		change(&b.race.Entry)
		b.race.Start(b.began)
	})
}

// play takes the steps of a script, which are separated by semicolons.
func (b *bout) play(script string) {
	b.t.Helper()
	for step := range strings.SplitSeq(script, "; ") {
		words := append(strings.Fields(step), "", "", "")
		arg, rest := words[1], words[2]
		if words[0] == "run" || words[0] == "pause" {
			d, err := time.ParseDuration(arg)
			if err != nil {
				b.t.Fatal(err)
			}
			if words[0] == "pause" {
				b.world.Faults.Pause(b.loop, d)
			}
			b.world.Run(d)
			continue
		}
		i, _ := strconv.Atoi(arg)
		n, _ := strconv.Atoi(rest)
		a := &b.race.attempts[min(i, MaxAttempts-1)]
		b.do(func() {
			switch words[0] {
			case "respond", "pushback", "local", "fail", "finish", "presume":
				if a.state == attemptIdle {
					b.t.Fatalf("%s: the attempt is over", step)
				}
			}
			switch words[0] {
			case "respond":
				a.Respond(b.response(a, n))
			case "pushback": // of a gRPC server that is not available
				res := b.response(a, 200)
				res.Headers = append(res.Headers, protocol.Header{Name: []byte("grpc-status"), Value: []byte("14")},
					protocol.Header{Name: []byte("grpc-retry-pushback-ms"), Value: []byte(rest)})
				a.Respond(res)
			case "stream": // a response with so many bytes of a body that goes on
				res := b.response(a, 200)
				res.Source = &StreamSource{Buffer: protocol.Unowned().GetRoom(100), Stream: a.NewStream()}
				res.Source.Buffer.B = append(res.Source.Buffer.B, make([]byte, n)...)
				if b.grpc {
					res.Headers = append(res.Headers, protocol.Header{Name: []byte("content-type"), Value: []byte("application/grpc")})
				}
				res.Charge()
				a.Respond(res)
			case "holds":
				wait := a.HoldsHead()
				b.note("holds its head for %d ms", wait.Round(time.Millisecond)/time.Millisecond)
			case "first": // byte of the body
				if do := b.stream.OnFirstByte(); do != nil {
					do()
				} else {
					b.note("nobody awaits the first byte")
				}
			case "code":
				b.stream.NoteCode(protocol.GRPCCode(i), rest == "said")
			case "connected":
				b.stream.Connected(i)
			case "failed":
				b.stream.Failed(failureNamed(arg))
			case "open":
				b.decided = true
				from := shard.Client{Listener: "in", Addr: "10.0.1.1:1", GRPC: b.grpc}
				if ss := b.svc.Sessions; ss != nil && arg == "pinned" {
					from.Session.Pin = ss.Sticky.ID(b.addrs[i])
				}
				b.before = b.stream
				Open(b.svc, from, b.picked)
			case "other": // stream that was opened
				b.stream, b.before = b.before, b.stream
			case "again":
				b.stream.Retry(failureNamed(arg), nil, b.picked)
			case "refuse":
				b.source.Refuse(failureNamed(arg))
			case "close":
				b.stream.Close(i != 0, 3, 4)
			case "local":
				a.RespondLocally(b.response(a, n))
			case "fail":
				a.Fail(failureNamed(rest))
			case "finish":
				a.Finish(rest == "processed")
			case "presume":
				a.Presume()
			case "started":
				a.Started()
			case "replay":
				paid := a.PayReplay()
				if b.note("replay %d: %t", i, paid); paid {
					a.Replay()
				}
			case "interim":
				if rest == "own" {
					a.Interim(&protocol.Response{Status: 103, Headers: []protocol.Header{{Name: []byte("x-remora-load"), Value: []byte("1")}, {Name: []byte("link")}}})
					return
				}
				times, _ := strconv.Atoi(words[3])
				for range max(1, times) {
					a.Interim(&protocol.Response{Status: 103, Headers: []protocol.Header{{Name: []byte("link"), Value: make([]byte, n)}}})
				}
			case "leave":
				b.over(false)
			case "abort":
				f := failureNamed(arg)
				if b.race.Abort(f); !b.decided {
					b.race.Conclude(f)
				}
			case "await":
				b.note("awaits %t", b.race.AwaitStart())
			case "untie":
				b.race.Untie()
			case "free": // the slot of other
				b.svc.Admission.GiveBack(&b.other.Place)
			case "load": // of the endpoint, in trailers of a response
				res := b.response(a, 200)
				res.Body = res.HeadBuffer.B
				res.Trailers = append(res.Trailers, protocol.Header{Name: []byte("endpoint-load-metrics"), Value: []byte("TEXT cpu_utilization=0.5, rps_fractional=10")})
				a.Respond(res)
			case "encode": // once more, for a connection that it waited for
				req := a.Outgoing().Request()
				text := fmt.Sprintf("encode %d as %d, hedge %t, tied %t", i, req.Attempt, req.Hedge, req.Tied)
				for _, h := range req.Headers {
					text += fmt.Sprintf(", %s: %s", h.Name, h.Value)
				}
				b.note("%s", text)
			case "seen":
				a.NoteSeen()
			case "answer": // to a probe
				b.svc.Probes.Answered(b.svc.Set.At(i), lb.Load{Pending: n})
			default:
				b.t.Fatalf("no step %q", words[0])
			}
		})
	}
	b.world.Run(100 * time.Microsecond) // what was posted
}

// failureNamed returns one of the failures that an attempt may have.
func failureNamed(code string) *fault.Failure {
	for _, f := range []*fault.Failure{
		fault.Reset, fault.Connect, fault.Refused, fault.GoAway, fault.Overloaded, fault.PoolExhausted, fault.NoSlot, fault.StreamLimit, fault.Malformed,
		fault.RequestTooLarge, fault.NotAllowed, fault.Deadline, fault.Shed, fault.RateLimited,
	} {
		if f.Code == code {
			return f
		}
	}
	return nil
}

// picked implements Picked.
func (b *bout) picked(s *Stream, at Target, f *fault.Failure) {
	if b.stream = s; f != nil {
		b.note("no endpoint: %s", f.Code)
		return
	}
	text := "picked"
	if i := slices.Index(b.addrs, at.Addr); i >= 0 {
		text += fmt.Sprintf(" %d again", i)
	}
	if b.addrs = append(b.addrs, at.Addr); at.Link {
		text += ", a link"
	}
	if at.Socket != nil {
		text += ", a pipe"
	}
	if at.Cookies.Set != nil {
		text += ", a cookie"
	}
	b.note("%s", text)
}

// response returns a response of an application to a.
func (b *bout) response(a *Attempt, status int) *Response {
	res := a.NewResponse()
	res.Status, res.HeadBuffer = status, b.shard.Buffers.GetRoom(100)
	res.HeadBuffer.B = append(res.HeadBuffer.B, "12345"...)
	res.Charge()
	return res
}

// over is what the owner does once it has its outcome, or if its caller has gone.
func (b *bout) over(decided bool) {
	b.decided = true
	b.race.Stop()
	b.race.Cancel(decided)
}

// Won implements Owner.
func (b *bout) Won(by *Attempt, res *Response) {
	text := fmt.Sprintf("%d wins with %d", by.index, res.Status) + b.recorded(by)
	if b.note("%s", text); by.Endpoint() != b.race.tried[by.index] {
		b.t.Errorf("%d has lost its endpoint", by.index)
	}
	b.race.CountWin(by, res.Status)
	if b.source = res.TakeSource(); b.source != nil {
		b.stream = b.source.Stream
		b.stream.Follow(shard.Client{Listener: "in", GRPC: b.grpc}, &b.passage)
		b.note("a stream, a call %t", b.stream.Call())
	}
	res.Release()
	b.over(true)
}

// Lost implements Owner.
func (b *bout) Lost(f *fault.Failure) {
	b.note("lost by %s%s", f.Code, b.recorded(nil))
	b.over(true)
}

// recorded returns what the access log says of the attempts. by has won, or is nil.
func (b *bout) recorded(by *Attempt) string {
	var r accesslog.Record
	b.race.Record(&r, by, b.loop.Now())
	text := fmt.Sprintf("; %d attempts", r.Attempts)
	if r.Retries+r.Hedges > 0 {
		text += fmt.Sprintf(", %d retries, %d hedges", r.Retries, r.Hedges)
	}
	if at := slices.IndexFunc(b.race.tried[:], func(e *lb.Endpoint) bool { return e != nil && e.Addr == r.Endpoint }); at >= 0 {
		text += fmt.Sprintf(", at the endpoint of %d", at)
	}
	if r.HedgeWon {
		text += ", by a hedge"
	}
	if r.Queued > 0 {
		text += fmt.Sprintf(", %d ms queued", r.Queued.Round(time.Millisecond)/time.Millisecond)
	}
	if b.race.MaybeProcessed {
		text += ", maybe processed"
	}
	for i := range b.race.attempts[:b.race.Launched] {
		if b.race.attempts[i].Seen() {
			text += fmt.Sprintf(", %d seen", i)
		}
	}
	return text
}

// Lingered implements Owner.
func (b *bout) Lingered(how Ended) {
	b.note("%s, %d left", [...]string{"withdrawn", "presumed", "responded"}[how], b.race.InFlight())
}

// Interim implements Owner.
func (b *bout) Interim(res *protocol.Response) {
	b.note("interim %d, %d headers", res.Status, len(res.Headers))
}

// Started implements Owner.
func (b *bout) Started() { b.note("started") }

// Client implements Owner.
func (b *bout) Client() shard.Client { return shard.Client{} }

// site is the Upstream of an endpoint, and the Carrier of its attempts.
type site struct {
	*bout
	ep *lb.Endpoint
}

func (site) Retire()                                   {}
func (site) Connections() int                          { return 0 }
func (site) Largest() (held, each int, h shard.Holder) { return 0, 0, nil }
func (site) Buffered(*Attempt) int                     { return 0 }
func (s site) TellsStart() bool                        { return s.tells }
func (s site) AskStart(a *Attempt)                     { s.note("ask %d", a.ID()) }
func (s site) Renew()                                  { s.note("renew") }
func (s site) Abort(a *Attempt)                        { s.note("abort %d", a.ID()) }

// OpenStream implements StreamOpener.
func (s site) OpenStream(shard.Client) loop.Socket { return &resets{} }

func (s site) Probe() bool {
	s.note("probe")
	return true
}

func (s site) Withdraw(a *Attempt) {
	s.note("withdraw %d", a.ID())
	a.Fail(fault.NoSlot)
}

func (s site) Cancel(a *Attempt) bool {
	s.note("cancel %d, overtaken %t", a.ID(), a.Overtaken())
	return s.lingers
}

// Send implements Upstream.
func (s site) Send(a *Attempt) {
	o := a.Outgoing()
	req, own := o.ForApplication()
	text := fmt.Sprintf("send %d as %d", a.index, req.Attempt)
	if a.IsHedge() != (a.kind == hedgeAttempt) || o.TimeLeft() != s.req.Deadline-s.loop.Now() || o.ToHead() || o.LogsIn() {
		s.t.Errorf("%d is wrong about its request", a.index)
	}
	if i := slices.Index(s.race.tried[:a.index], s.ep); i >= 0 {
		text += fmt.Sprintf(", at the endpoint of %d", i)
	}
	if req.Hedge {
		text += ", hedge"
	}
	if req.Tied {
		text += ", tied"
	}
	for i, h := range req.Headers {
		if text += fmt.Sprintf(", %s: %s", h.Name, h.Value); i >= own {
			text += " of its own"
		}
	}
	req.Headers = req.Headers[:own]
	if s.note("%s", text); s.ep != a.Endpoint() || s.ep != s.race.tried[a.index] {
		s.t.Errorf("%d goes elsewhere", a.index)
	}
	a.Carry(s, uint64(a.index))
}

// told returns what was noted.
func (b *bout) told() (all []string) {
	for i, n := 0, 0; i < len(b.events); i += n {
		for n = 1; i+n < len(b.events) && b.events[i+n] == b.events[i]; n++ {
		}
		if all = append(all, b.events[i]); n > 1 {
			all[len(all)-1] += fmt.Sprintf(", %d times", n)
		}
	}
	return all
}

// String returns what was noted, the spans of the request, and what was counted.
func (b *bout) String() (s string) {
	b.do(func() {
		all := b.told()
		if b.race.Traced == nil {
			b.race.Traced = new(Traced) // of a stream
		}
		for i := range b.race.Traced.Attempts {
			a := &b.race.Traced.Attempts[i]
			if a.Endpoint == "" {
				continue
			}
			text := fmt.Sprintf("%s %d: %s, ended after %d ms", a.Kind, a.Number, a.Outcome, (a.Ended-a.Sent).Round(time.Millisecond)/time.Millisecond)
			if a.GRPC.Known {
				text += ", " + a.GRPC.Code.String()
			}
			if a.Status != 0 || a.Error != "" {
				text += fmt.Sprintf(", %d %s", a.Status, a.Error)
			}
			if a.Withdrawn != 0 {
				text += fmt.Sprintf(", withdrawn after %d ms", (a.Withdrawn-a.Sent).Round(time.Millisecond)/time.Millisecond)
			}
			all = append(all, text)
		}
		s = strings.Join(append(all, b.counts()), "\n")
	})
	return s
}

// checkEnd checks that nothing is left of the race, which may begin again.
func (b *bout) checkEnd() {
	b.t.Helper()
	b.do(func() {
		r := &b.race
		if !b.decided {
			b.t.Error("the race goes on")
			b.over(false)
			r.Abort(fault.Shed)
		}
		if r.InFlight() != 0 || r.Buffered() != 0 || b.svc.Hedging.InFlight() != 0 || b.shard.Uncounted != 0 || b.shard.Process.Budget.Held() != 0 {
			b.t.Errorf("%d attempts, %d hedges, %d bytes are left", r.InFlight(), b.svc.Hedging.InFlight(), b.shard.Uncounted)
		}
		for i, timer := range []*loop.Timer{&r.hedging.timer, &r.tries.timer, &r.retrying.timer} {
			if timer.Armed() {
				b.t.Errorf("timer %d is armed", i)
			}
		}
		if used, queued := b.svc.Shared.SlotsInUse(); used != 0 || queued != 0 {
			b.t.Errorf("%d slots are used, %d attempts queued", used, queued)
		}
		for i := range b.svc.Set.Len() {
			if e := b.svc.Set.At(i); e.Pending() != 0 || e.Streams() != 0 || e.OfProcess() != 0 {
				b.t.Errorf("%d attempts, %d streams and %d not batch count at an endpoint", e.Pending(), e.Streams(), e.OfProcess())
			}
		}
		r.Reset()
		if r.waiting() != nil || r.Launched != 0 || r.MaybeProcessed {
			b.t.Error("something is left for the next request")
		}
	})
}

// inMS returns the longest of latencies in milliseconds.
func inMS(d *histogram.Distribution) int {
	most, _ := d.Quantile(1)
	return int(most.Round(time.Millisecond) / time.Millisecond)
}

// counts returns the counts of the service and of its endpoints that are not 0.
func (b *bout) counts() string {
	c, ends := b.svc.Counts(), stats.EndpointStats{}
	var all []string
	add := func(name string, n int) {
		if n != 0 {
			all = append(all, fmt.Sprintf("%s %d", name, n))
		}
	}
	inRow, took, streaks := 0, time.Duration(0), 0
	for _, e := range b.svc.Report(stats.Counters).Endpoints {
		ends.Add(&e.Stats)
		inRow, took, streaks = inRow+e.FailedInRow, took+e.Latency, streaks+e.RecentGood
	}
	add("retries", int(c.Retries))
	add("streams", int(c.Streams))
	add("open", c.StreamsOpen)
	add("streams failed", int(c.StreamsFailed))
	add("streams in", int(c.StreamBytesIn))
	add("streams out", int(c.StreamBytesOut))
	now := b.loop.Now()
	tokens := int(b.svc.Hedging.Tokens(now)*100 + .5)
	add("hundredths of a token", tokens)
	spare, refusing := 0, 0
	for i := range b.svc.Set.Len() {
		e := b.svc.Set.At(i)
		if e.Spare(now) {
			spare++
		}
		if e.Refuses() {
			refusing++
		}
	}
	add("spare", spare)
	add("refusing", refusing)
	if effect := b.policy.HedgeRoute.Effect(now); effect != nil {
		add("ms with hedges", inMS(&effect.With))
		add("ms without", inMS(&effect.Without))
		add("longer", int(effect.Without.Censored))
		add("one in", effect.OneIn)
	}
	for _, class := range b.policy.HedgeRoute.Classes(now) {
		add("of class "+class.Name, class.Samples)
	}
	for code, n := range c.GRPC {
		add(protocol.GRPCCode(code).String(), int(n))
	}
	add("in flight", b.svc.Shared.InFlight())
	if b.policy.HedgeRoute.Heads.Hold() {
		add("heads are held", 1)
	}
	add("paid", int(c.RetriesPaid))
	add("ahead", int(c.RetriesAhead))
	add("over budget", int(c.RetriesOverBudget))
	add("cascade", int(c.RetriesCascade))
	add("replays", int(b.shard.Stats.Replays))
	add("tied queued", int(c.TiedQueued))
	add("tied withdrawn", int(c.TiedWithdrawn))
	add("hedges", int(c.Hedges))
	add("missed", int(c.HedgesMissed))
	add("won", int(c.HedgesWon))
	for o, n := range ends.Outcomes {
		add(stats.AttemptOutcome(o).String(), int(n))
	}
	add("endpoint retries", int(ends.Retries))
	add("endpoint hedges", int(ends.Hedges))
	add("in", int(ends.BytesIn))
	add("out", int(ends.BytesOut))
	add("failed in row", inRow)
	add("good", streaks)
	add("ms of endpoints", int(took.Round(time.Millisecond)/time.Millisecond))
	add("ms", int(b.svc.Load().Latency.Round(time.Millisecond)/time.Millisecond))
	d := b.svc.Routes[0].Latencies.Primaries.Distribution(b.loop.Now())
	add("latencies", int(d.Samples()))
	add("censored", int(d.Censored))
	if all == nil {
		return "nothing"
	}
	return strings.Join(all, ", ")
}
