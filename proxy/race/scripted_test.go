package race

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/service"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/sim"
	"github.com/remora-proxy/remora/proxy/telemetry/accesslog"
	"github.com/remora-proxy/remora/proxy/telemetry/trace"
	"github.com/remora-proxy/remora/registry"
)

// scriptedRace is a race of a request whose endpoints do what a script says. It notes what they and the owner of the race see.
type scriptedRace struct {
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

	other   place          // holds a slot of the service
	second  place          // waits for one
	filled  []*place       // have slots
	others  []*lb.Endpoint // that have attempts of other requests
	before  *Stream        // that was opened before stream
	stream  *Stream        // of the response, or the one that was opened
	addrs   []string       // that were picked for the stream
	source  *StreamSource  // of the response
	lingers bool           // endpoints may still work on attempts that are cancelled
	tells   telling        // which endpoints tell when attempts start
	grpc    bool           // the request is a gRPC call

	passage service.Passage // of the request
	decided bool            // the owner has its outcome
}

// telling says which endpoints tell when attempts start.
type telling int

const (
	noneTells  telling = iota
	firstTells         // that of the first attempt
	othersTell         // all but that of the first attempt
	allTell
)

// logged notes the lines of the log.
type logged struct{ *scriptedRace }

func (l logged) Write(line []byte) (int, error) {
	l.note("log: %s", bytes.TrimSpace(line))
	return len(line), nil
}

// logger returns a log whose warnings are noted, without their time.
func (s *scriptedRace) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(logged{s}, &slog.HandlerOptions{
		Level: slog.LevelWarn,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))
}

// place is a place of the service that no attempt of the race has.
type place struct{ service.Place }

func (*place) Granted(time.Duration) {}

// newScriptedRace returns a race at so many endpoints of a service with changed settings.
func newScriptedRace(t *testing.T, endpoints int, change func(c *config.Service)) *scriptedRace {
	t.Helper()
	s := &scriptedRace{t: t, world: sim.New(1)}
	s.loop = s.world.Loop("a")
	s.do(func() {
		cfg := config.Default()
		s.shard = shard.New(&shard.Process{Loops: 1}, 0, s.loop, s.logger(), 1)
		s.shard.Process.Budget.Configure(&cfg.Limits)
		s.shard.Configure(cfg)
		c := config.DefaultService("s")
		c.Policy.Timeout, c.Probe, c.Breaker.Consecutive = time.Second, config.ProbeOff, 0
		c.Policy.Hedge.Mode, c.Policy.Hedge.Class = config.HedgeOff, config.ClassNone
		c.Protocol = config.ProtocolHTTP
		change(c)
		m := service.NewMember(c, service.Member{}, 1)
		m.LimitSlots()
		m.Prepare(s.shard, "", service.Protocols{
			"": s.protocol(service.StreamPlain), config.ProtocolLink: s.protocol(service.StreamLink),
			config.ProtocolDubbo: s.protocol(service.StreamNone), config.ProtocolHTTP2: s.protocol(service.StreamPipe),
		})
		s.svc = m.Follow(s.shard)
		s.policy = NewPolicy(&c.Policy, 1)
		s.svc.Routes = []service.HedgedRoute{{Route: s.policy.HedgeRoute}}
		var list []registry.Endpoint
		for i := range endpoints {
			list = append(list, registry.Endpoint{Addr: fmt.Sprintf("10.0.0.%d:1", i+1), Weight: 1})
		}
		m.Update(registry.NewSnapshot("s", registry.SourceLive, time.Time{}, list), "")
		s.other.Init(&s.other)
		s.second.Init(&s.second)
		s.race.Init(s.shard, &Responses{Shard: s.shard}, s, &s.req)
	})
	s.world.Run(time.Millisecond)
	return s
}

// protocol returns how streams reach endpoints of a protocol.
func (s *scriptedRace) protocol(access service.StreamAccess) service.Protocol {
	connect := func(_ *service.Service, e *service.Endpoint) Upstream { return scriptedEndpoint{s, e.LB} }
	return service.Protocol{Streams: access, Connector: ConnectBy(connect)}
}

func (s *scriptedRace) do(f func()) { s.loop.Do(f) }

func (s *scriptedRace) note(f string, v ...any) {
	s.events = append(s.events, fmt.Sprintf("%d ms: ", (s.loop.Now()-s.began).Round(time.Millisecond)/time.Millisecond)+fmt.Sprintf(f, v...))
}

// start begins the race of the request.
func (s *scriptedRace) start(change func(e *Entry)) {
	s.decided, s.events, s.addrs = false, nil, nil
	s.do(func() {
		s.began = s.loop.Now()
		s.race.Traced = &Traced{Record: trace.Record{Attempts: make([]trace.Attempt, MaxAttempts)}}
		s.req = protocol.Request{Method: []byte("GET"), Idempotent: true}
		s.req.Deadline = s.began + s.policy.Timeout
		s.race.Entry = Entry{Service: s.svc, Policy: &s.policy, Bytes: 10}
		change(&s.race.Entry)
		s.race.Start(s.began)
	})
}

// picked implements Picked.
func (s *scriptedRace) picked(stream *Stream, at Target, f *fault.Failure) {
	if s.stream = stream; f != nil {
		s.note("no endpoint: %s", f.Code)
		return
	}
	text := "picked"
	if i := slices.Index(s.addrs, at.Addr); i >= 0 {
		text += fmt.Sprintf(" %d again", i)
	}
	if s.addrs = append(s.addrs, at.Addr); at.Link {
		text += ", a link"
	}
	if at.Socket != nil {
		text += ", a pipe"
	}
	if at.Cookies.Set != nil {
		text += ", a cookie"
	}
	s.note("%s", text)
}

// pickedAgain is picked for a stream that has asked again.
func (s *scriptedRace) pickedAgain(stream *Stream, at Target, f *fault.Failure) {
	s.note("asked again")
	s.picked(stream, at, f)
}

// over is what the owner does once it has its outcome, or if its caller has gone.
func (s *scriptedRace) over(decided bool) {
	s.decided = true
	s.race.Stop()
	s.race.Cancel(decided)
	s.passage.End()
}

// Won implements Owner.
func (s *scriptedRace) Won(by *Attempt, res *Response) {
	text := fmt.Sprintf("%d wins with %d", by.index, res.Status) + s.recorded(by)
	if s.note("%s", text); by.Endpoint() != s.race.tried[by.index] {
		s.t.Errorf("%d has lost its endpoint", by.index)
	}
	s.race.CountWin(by, res.Status)
	s.race.Traced.NoteResponse(by, trace.Won, res)
	if s.source = res.TakeSource(); s.source != nil {
		s.stream = s.source.Stream
		s.stream.Follow(shard.Client{Listener: "in", GRPC: s.grpc}, &s.passage)
		s.note("a stream, a call %t, %d in flight", s.stream.Call(), s.svc.Shared.InFlight())
	}
	res.Release()
	s.over(true)
}

// Lost implements Owner.
func (s *scriptedRace) Lost(f *fault.Failure) {
	s.note("lost by %s%s", f.Code, s.recorded(nil))
	s.over(true)
}

// recorded returns what the access log says of the attempts. by has won, or is nil.
func (s *scriptedRace) recorded(by *Attempt) string {
	var r accesslog.Record
	s.race.Record(&r, by, s.loop.Now())
	text := fmt.Sprintf("; %d attempts", r.Attempts)
	if r.Retries+r.Hedges > 0 {
		text += fmt.Sprintf(", %d retries, %d hedges", r.Retries, r.Hedges)
	}
	if at := slices.IndexFunc(s.race.tried[:], func(e *lb.Endpoint) bool { return e != nil && e.Addr == r.Endpoint }); at >= 0 {
		text += fmt.Sprintf(", at the endpoint of %d", at)
	}
	if r.HedgeWon {
		text += ", by a hedge"
	}
	if r.Queued > 0 {
		text += fmt.Sprintf(", %d ms queued", r.Queued.Round(time.Millisecond)/time.Millisecond)
	}
	if s.race.MaybeProcessed {
		text += ", maybe processed"
	}
	for i := range s.race.attempts[:s.race.Launched] {
		if s.race.attempts[i].Seen() {
			text += fmt.Sprintf(", %d seen", i)
		}
	}
	return text
}

// Lingered implements Owner.
func (s *scriptedRace) Lingered(how Ended) {
	s.note("%s, %d left", [...]string{"withdrawn", "presumed", "responded"}[how], s.race.InFlight())
}

// Interim implements Owner.
func (s *scriptedRace) Interim(res *protocol.Response) {
	s.note("interim %d, %d headers", res.Status, len(res.Headers))
}

// Started implements Owner.
func (s *scriptedRace) Started() { s.note("started") }

// Concurrency implements service.Claimant.
func (s *scriptedRace) Concurrency(int) int { return 1 }

// Client implements Owner.
func (s *scriptedRace) Client() shard.Client { return shard.Client{} }

// scriptedEndpoint is the Upstream of an endpoint, and the Carrier of its attempts.
type scriptedEndpoint struct {
	*scriptedRace
	ep *lb.Endpoint
}

func (scriptedEndpoint) Retire()                                   {}
func (scriptedEndpoint) Connections() int                          { return 0 }
func (scriptedEndpoint) Largest() (held, each int, h shard.Holder) { return 0, 0, nil }
func (scriptedEndpoint) Buffered(*Attempt) int                     { return 0 }
func (e scriptedEndpoint) AskStart(a *Attempt)                     { e.note("ask %d", a.ID()) }
func (e scriptedEndpoint) Renew()                                  { e.note("renew") }
func (e scriptedEndpoint) Abort(a *Attempt)                        { e.note("abort %d", a.ID()) }

// TellsStart implements StartUpstream and StartCarrier.
func (e scriptedEndpoint) TellsStart() bool {
	isFirst := e.ep == e.race.tried[0]
	return e.tells == allTell || e.tells == firstTells && isFirst || e.tells == othersTell && !isFirst
}

// OpenStream implements StreamOpener.
func (e scriptedEndpoint) OpenStream(shard.Client) loop.Socket { return &resets{} }

func (e scriptedEndpoint) Probe() bool {
	e.note("probe")
	return true
}

func (e scriptedEndpoint) Withdraw(a *Attempt) {
	e.note("withdraw %d", a.ID())
	a.Fail(fault.NoSlot)
}

func (e scriptedEndpoint) Cancel(a *Attempt) bool {
	e.note("cancel %d, overtaken %t", a.ID(), a.Overtaken())
	return e.lingers
}

// Send implements Upstream.
func (e scriptedEndpoint) Send(a *Attempt) {
	o := a.Outgoing()
	req, own := o.ForApplication()
	text := fmt.Sprintf("send %d as %d", a.index, req.Attempt)
	if a.IsHedge() != (a.kind == hedgeAttempt) || o.TimeLeft() != e.req.Deadline-e.loop.Now() || o.ToHead() || o.LogsIn() {
		e.t.Errorf("%d is wrong about its request", a.index)
	}
	if i := slices.Index(e.race.tried[:a.index], e.ep); i >= 0 {
		text += fmt.Sprintf(", at the endpoint of %d", i)
	}
	switch {
	case e.race.Pin == e.ep:
		text += ", at its pin"
	case e.svc.Probes.On:
		for i := range e.svc.Set.Len() {
			if e.svc.Set.At(i) == e.ep {
				text += fmt.Sprintf(", at endpoint %d", i)
			}
		}
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
	if e.note("%s", text); e.ep != a.Endpoint() || e.ep != e.race.tried[a.index] {
		e.t.Errorf("%d goes elsewhere", a.index)
	}
	a.Carry(e, uint64(a.index))
}

// checkEnd checks that nothing is left of the race, which may begin again.
func (s *scriptedRace) checkEnd() {
	s.t.Helper()
	s.do(func() {
		r := &s.race
		if !s.decided {
			s.t.Error("the race goes on")
			s.over(false)
			r.Abort(fault.Shed)
		}
		if r.InFlight() != 0 || r.Buffered() != 0 || s.svc.Hedging.InFlight() != 0 || s.shard.Uncounted != 0 || s.shard.Process.Budget.Held() != 0 {
			s.t.Errorf("%d attempts, %d hedges, %d bytes are left", r.InFlight(), s.svc.Hedging.InFlight(), s.shard.Uncounted)
		}
		for i, timer := range []*loop.Timer{&r.hedging.timer, &r.tries.timer, &r.retrying.timer} {
			if timer.Armed() {
				s.t.Errorf("timer %d is armed", i)
			}
		}
		if used, queued := s.svc.Shared.SlotsInUse(); used != 0 || queued != 0 {
			s.t.Errorf("%d slots are used, %d attempts queued", used, queued)
		}
		for i := range s.svc.Set.Len() {
			if e := s.svc.Set.At(i); e.Pending() != 0 || e.Streams() != 0 || e.OfProcess() != 0 {
				s.t.Errorf("%d attempts, %d streams and %d not batch count at an endpoint", e.Pending(), e.Streams(), e.OfProcess())
			}
		}
		r.Reset()
	})
}
