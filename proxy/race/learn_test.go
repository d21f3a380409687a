package race

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/hedge"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/service"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/telemetry/accesslog"
)

// TestLearning: what a route learns of a primary that a hedge has overtaken, and of what the hedge has saved.
func TestLearning(t *testing.T) {
	const ms = time.Millisecond
	const sent, overtaken, ended = 10 * ms, 30 * ms, 50 * ms
	done, withdrawn, presumed := (*learning).onDone, (*learning).onWithdrawn, (*learning).onPresumed
	for name, c := range map[string]struct {
		kind            attemptKind
		batch, streamed bool
		hedges, refused uint8
		end             func(l *learning, a *Attempt, now time.Duration)

		censored      bool          // the primary is known to be slow, and no more
		without, with time.Duration // its latency, and that of the response of the hedge; 0 means unknown
		unknown       bool          // nobody learns what the hedge has saved
	}{
		"the application finishes the primary":  {end: done, hedges: 1, without: 40 * ms, with: 20 * ms},
		"two hedges, and one was refused":       {end: done, hedges: 2, refused: 1, without: 40 * ms, with: 20 * ms},
		"its end is presumed":                   {end: presumed, hedges: 1, without: 40 * ms, with: 20 * ms},
		"the primary is withdrawn":              {end: withdrawn, hedges: 1, censored: true, with: 20 * ms, unknown: true},
		"all hedges were refused":               {end: done, hedges: 1, refused: 1, censored: true, with: 20 * ms},
		"all were refused, and it is withdrawn": {end: withdrawn, hedges: 1, refused: 1, censored: true, with: 20 * ms},
		"the response is a stream":              {end: done, hedges: 1, streamed: true, censored: true, with: 20 * ms},
		"a stream, and it is withdrawn":         {end: withdrawn, hedges: 1, streamed: true, censored: true, with: 20 * ms},
		"no hedge":                              {end: done, censored: true},
		"a batch request":                       {end: done, hedges: 1, batch: true},
		"a hedge":                               {end: done, kind: hedgeAttempt, hedges: 1},
		"a hedge that is withdrawn":             {end: withdrawn, kind: hedgeAttempt, hedges: 1},
		"a hedge whose end is presumed":         {end: presumed, kind: hedgeAttempt, hedges: 1},
		"a retry":                               {end: done, kind: retryAttempt, hedges: 1},
	} {
		route := hedge.NewRoute(hedge.Policy{Mode: hedge.On, Delay: ms, Max: 2}, 1)
		r := &Race{Entry: Entry{Service: &service.Service{}, Policy: &Policy{HedgeRoute: route}, Batch: c.batch}, Launched: 1}
		l, a := &r.learning, &r.attempts[0]
		l.race, l.streamed, r.hedging.sent, r.hedging.refused = r, c.streamed, c.hedges, c.refused
		a.race, a.kind, a.visit.sent = r, c.kind, sent
		l.onOvertaken(a, overtaken)
		c.end(l, a, ended)
		e := route.Effect(ended)
		without, known := e.Without.Quantile(1)
		if (e.Without.Censored == 1) != c.censored || known != (c.without > 0) || (without-c.without).Abs() > ms {
			t.Errorf("%s: the primary takes %v, %d are censored", name, without, e.Without.Censored)
		}
		with, known := e.With.Quantile(1)
		if known != (c.with > 0) || (with-c.with).Abs() > ms {
			t.Errorf("%s: the response comes after %v", name, with)
		}
		for range 1000 {
			route.Savings.Judge(ended, ms, 0)
		}
		if all := route.Effect(ended).OneIn == 1; all != c.unknown {
			t.Errorf("%s: one in %d decisions may hedge", name, route.Effect(ended).OneIn)
		}
	}
}

// TestWorthOfHedges: from which late requests a service learns that hedges would gain something. Where all endpoints are silent, and where
// hedges take as long as first attempts do, the hedges would gain nothing.
func TestWorthOfHedges(t *testing.T) {
	const ms = time.Millisecond
	respond := func(s *scriptedRace) { s.race.attempts[0].Respond(s.response(&s.race.attempts[0], 200)) }
	deadline := func(s *scriptedRace) {
		s.race.Abort(fault.Deadline)
		s.race.Conclude(fault.Deadline)
	}
	hedged := func(s *scriptedRace) {
		s.lingers = true
		s.over(false)
		for i := range s.race.Launched {
			s.race.attempts[i].Finish(true)
		}
	}
	for name, c := range map[string]struct {
		silent   bool // the other endpoints are silent during late requests
		deadline bool // as many late requests reach their deadline as have a response
		hedges   bool // twice as many late requests have a hedge, which takes as long as a late response, and their caller leaves
		gains    bool
	}{
		"late responses":                    {gains: true},
		"deadlines":                         {deadline: true, gains: true},
		"all endpoints are silent":          {silent: true},
		"all are silent until the deadline": {silent: true, deadline: true},
		"hedges take as long":               {hedges: true},
	} {
		s := newScriptedRace(t, 3, func(c *config.Service) {
			c.Policy.Hedge = config.Hedge{Mode: config.HedgeOn, Delay: config.DelayAuto, MinDelay: 5 * ms, MaxDelay: 5 * ms, Budget: 1, Max: 1, Class: config.ClassNone}
		})
		play := func(took time.Duration, noHedge, silent bool, end func(s *scriptedRace)) {
			s.do(s.race.Reset)
			s.lingers = false
			s.start(func(e *Entry) { e.NoHedge = noHedge })
			var others []*lb.Endpoint
			s.do(func() {
				for i := range s.svc.Set.Len() {
					if ep := s.svc.Set.At(i); silent && ep != s.race.attempts[0].Endpoint() {
						ep.Start(s.loop.Now())
						others = append(others, ep)
					}
				}
			})
			s.world.Run(took)
			s.do(func() {
				end(s)
				for _, ep := range others {
					ep.Drop()
				}
			})
		}
		for range 120 {
			for range 10 {
				play(ms, true, false, respond)
			}
			play(100*ms, true, c.silent, respond)
			if c.deadline {
				play(100*ms, true, c.silent, deadline)
			}
			if c.hedges {
				for range 2 {
					play(100*ms, false, false, hedged)
				}
			}
		}
		play(ms, true, false, respond)
		s.checkEnd()
		if best := s.policy.HedgeRoute.Delays.Best(); !best.Known() || best.Gains() != c.gains {
			t.Errorf("%s: %+v", name, best)
		}
	}
}

// TestLearnedOfResponses: a route learns the latency of primaries that respond, but not of batch requests, retries and hedges. Those
// whose time is up count as slower than all.
func TestLearnedOfResponses(t *testing.T) {
	const ms = time.Millisecond
	for _, batch := range []bool{false, true} {
		for kind, counts := range map[attemptKind]bool{primaryAttempt: !batch, retryAttempt: false, hedgeAttempt: false} {
			route := hedge.NewRoute(hedge.Policy{Mode: hedge.On, Delay: ms}, 1)
			r := &Race{Entry: Entry{Service: &service.Service{}, Policy: &Policy{HedgeRoute: route}, Batch: batch}}
			a := &Attempt{race: r, kind: kind}
			r.learning.race, a.visit.sent = r, 10*ms
			r.learning.onResponse(a, 15*ms)
			r.learning.onLate(a, 20*ms)
			d := route.Latencies.Primaries.Distribution(20 * ms)
			if took, _ := d.Quantile(.5); (d.Samples() == 2) != counts || (d.Censored == 1) != counts || counts && (took-5*ms).Abs() > ms {
				t.Errorf("batch %t, kind %d: %d latencies, %d of them censored, the other %v", batch, kind, d.Samples(), d.Censored, took)
			}
		}
	}
}

// held is a Carrier that holds memory for an attempt.
type held struct {
	Carrier
	bytes int
}

func (h held) Buffered(*Attempt) int { return h.bytes }

// TestBuffered: a race holds what its attempts hold, and the best of the bad responses.
func TestBuffered(t *testing.T) {
	r := &Race{Launched: 2}
	if n := r.Buffered(); n != 0 {
		t.Errorf("%d bytes before the attempts are sent", n)
	}
	r.attempts[0].carrier, r.attempts[1].carrier, r.attempts[2].carrier = held{bytes: 5}, held{bytes: 7}, held{bytes: 100}
	if n := r.Buffered(); n != 12 {
		t.Errorf("%d bytes, want 12", n)
	}
	r.best = &Response{Held: 30}
	if n := r.Buffered(); n != 42 {
		t.Errorf("%d bytes with a response, want 42", n)
	}
	r.attempts[0].Detach()
	if n := r.Buffered(); n != 37 {
		t.Errorf("%d bytes without the carrier of an attempt, want 37", n)
	}
}

// resets is a Socket that counts how often it is reset.
type resets struct {
	loop.Socket
	n int
}

func (r *resets) Reset() { r.n++ }

// TestDiscardedSource: the body of a response that is a stream, and that nobody takes, is discarded with its connection and memory.
func TestDiscardedSource(t *testing.T) {
	for name, discard := range map[string]func(s *StreamSource){
		"closed": (*StreamSource).Close, "refused": func(s *StreamSource) { s.Refuse(fault.Malformed) },
	} {
		socket := &resets{}
		s := &StreamSource{Socket: socket, Buffer: new(bytebufferpool.ByteBuffer)}
		if discard(s); socket.n != 1 || s.Buffer != nil {
			t.Errorf("%s: the socket is reset %d times, memory is kept: %t", name, socket.n, s.Buffer != nil)
		}
		discard(&StreamSource{}) // a body that would be fetched
	}
}

// TestEndOfSource: the line of a stream that nobody takes says how the stream and its call have ended.
func TestEndOfSource(t *testing.T) {
	for name, c := range map[string]struct {
		call bool
		end  func(s *StreamSource)
		want string
	}{
		"closed":         {false, (*StreamSource).Close, "cut, 200, -, -"},
		"a closed call":  {true, (*StreamSource).Close, "cut, 200, cancelled, -"},
		"refused":        {false, func(s *StreamSource) { s.Refuse(fault.Shed) }, "failed, 503, -, shed"},
		"a refused call": {true, func(s *StreamSource) { s.Refuse(fault.Shed) }, "failed, 503, resource-exhausted, shed"},
	} {
		s, path := newScriptedRace(t, 1, func(*config.Service) {}), filepath.Join(t.TempDir(), "log")
		rules := config.Default().AccessLog
		rules.Format = "{outcome}, {status}, {grpc_status}, {error}"
		q := accesslog.NewQueue(1<<20, 1, new(accesslog.Counts))
		w, err := accesslog.Open(path, q, nil)
		if err != nil {
			t.Fatal(err)
		}
		s.do(func() {
			s.shard.AccessLog.Configure(&rules, q)
			stream := newResponseStream(s.svc, &visit{ep: s.svc.Set.At(0)}, s.loop.Now())
			if c.call {
				stream.carried.await()
			}
			stream.carried.Follow(shard.Client{}, &s.passage)
			c.end(&StreamSource{Stream: &stream.carried, Record: s.shard.AccessLog.Stream(&accesslog.Record{Status: 200, Stream: "body"})})
		})
		s.world.Run(time.Second)
		if err := w.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if text, err := os.ReadFile(path); err != nil || strings.TrimSpace(string(text)) != c.want {
			t.Errorf("%s: the line is %q, want %q, %v", name, text, c.want, err)
		}
	}
}

// starts is a StartCarrier that counts what is withdrawn.
type starts struct {
	held
	withdrawn *int
}

func (starts) TellsStart() bool    { return true }
func (starts) AskStart(*Attempt)   {}
func (s starts) Withdraw(*Attempt) { *s.withdrawn++ }

// TestStarted: the hedges that wait are withdrawn once the primary has started, or the retry in its place. Others start for themselves.
func TestStarted(t *testing.T) {
	for _, c := range []struct {
		kind      attemptKind
		state     attemptState
		withdrawn int
	}{{primaryAttempt, attemptSent, 1}, {retryAttempt, attemptSent, 1}, {primaryAttempt, attemptLingering, 0}, {hedgeAttempt, attemptSent, 0}} {
		withdrawn := 0
		r := &Race{Launched: 2}
		r.ties = ties{race: r, tie: tied}
		r.attempts[0] = Attempt{race: r, kind: c.kind, state: c.state}
		r.attempts[1] = Attempt{race: r, kind: hedgeAttempt, state: attemptSent, carrier: starts{withdrawn: &withdrawn}}
		if r.attempts[0].Started(); withdrawn != c.withdrawn || (r.ties.tie == tied) != (c.withdrawn == 0) {
			t.Errorf("kind %d, %s: %d hedges are withdrawn", c.kind, c.state, withdrawn)
		}
	}
}
