package race

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/remora-proxy/remora/internal/scripttest"
	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/service"
	"github.com/remora-proxy/remora/proxy/shard"
)

// take takes the steps of a part.
func (s *scriptedRace) take(p *scripttest.Part) {
	s.t.Helper()
	p.Each(s.t, func(step *scripttest.Step) {
		switch step.Name {
		case "pause":
			d := step.Duration()
			s.world.Faults.Pause(s.loop, d)
			s.world.Run(d)
		case "run":
			s.world.Run(step.Duration())
		case "next": // perhaps with more words for what the request is like
			var words []string
			for step.More() {
				words = append(words, strings.ReplaceAll(step.Word(), "-", " "))
			}
			s.next(p, words...)
		case "others":
			s.playOthers(p, step)
		default:
			take := scripttest.Find(s.t, steps, step.Name)
			s.do(func() { take(s, step) })
		}
	})
	s.world.Run(100 * time.Microsecond) // what was posted
}

// playOthers plays so many requests before this one, each of which takes so long. The first endpoint responds perhaps with another status
// than 200, or the word "deadline" says that each request to it reaches its deadline.
func (s *scriptedRace) playOthers(p *scripttest.Part, step *scripttest.Step) {
	n, took, status, deadline, noted := step.Int(), step.Duration(), 200, false, s.events
	if step.More() {
		if word := step.Word(); word == "deadline" {
			deadline = true
		} else if _, err := fmt.Sscan(word, &status); err != nil {
			s.t.Fatalf("others: %q is no status", word)
		}
	}
	for range n {
		s.world.Run(took)
		s.do(func() {
			switch a := &s.race.attempts[0]; {
			case a.Endpoint() != s.svc.Set.At(0):
				a.Respond(s.response(a, 200))
			case deadline:
				s.reachDeadline()
			default:
				a.Respond(s.response(a, status))
			}
		})
		s.next(p)
	}
	s.events = noted
}

// reachDeadline has the request reach its deadline, after its caller has left if endpoints linger.
func (s *scriptedRace) reachDeadline() {
	if s.lingers {
		s.over(false)
	}
	s.race.Abort(fault.Deadline)
	if !s.decided {
		s.race.Conclude(fault.Deadline)
	}
}

// steps are the steps of a script, but for those that let time pass.
var steps = map[string]func(s *scriptedRace, step *scripttest.Step){
	// What endpoints do.
	"respond": func(s *scriptedRace, step *scripttest.Step) {
		a := s.pending(step)
		a.Respond(s.response(a, step.Int()))
	},
	"pushback": func(s *scriptedRace, step *scripttest.Step) { // of a gRPC server that is not available
		a := s.pending(step)
		res := s.response(a, 200)
		res.Headers = append(res.Headers, protocol.Header{Name: []byte("grpc-status"), Value: []byte("14")},
			protocol.Header{Name: []byte("grpc-retry-pushback-ms"), Value: []byte(step.Word())})
		a.Respond(res)
	},
	"stream": func(s *scriptedRace, step *scripttest.Step) { // a response with so many bytes of a body that goes on
		a := s.pending(step)
		res := s.response(a, 200)
		res.Source = &StreamSource{Buffer: protocol.Unowned().GetRoom(100), Stream: a.NewStream()}
		res.Source.Buffer.B = append(res.Source.Buffer.B, make([]byte, step.Int())...)
		if s.grpc {
			res.Headers = append(res.Headers, protocol.Header{Name: []byte("content-type"), Value: []byte("application/grpc")})
		}
		res.Charge()
		a.Respond(res)
	},
	"load": func(s *scriptedRace, step *scripttest.Step) { // of the endpoint, in trailers of a response
		a := s.pending(step)
		res := s.response(a, 200)
		res.Body = res.HeadBuffer.B
		res.Trailers = append(res.Trailers, protocol.Header{Name: []byte("endpoint-load-metrics"), Value: []byte("TEXT cpu_utilization=0.5, rps_fractional=10")})
		a.Respond(res)
	},
	"text": func(s *scriptedRace, step *scripttest.Step) { // a response with a body, whose headers tell a load and a gRPC code
		a := s.pending(step)
		res := s.response(a, step.Int())
		res.Body = res.HeadBuffer.B
		isTrailer, code := step.Is("trailers", "headers"), "14"
		if step.More() {
			code = step.Word()
		}
		res.Headers = append(res.Headers, protocol.Header{Name: []byte("grpc-status"), Value: []byte(code)})
		if isTrailer {
			res.Headers, res.Trailers = nil, res.Headers
		}
		a.Respond(res)
	},
	"local": func(s *scriptedRace, step *scripttest.Step) { // a response of the upstream
		a := s.pending(step)
		a.RespondLocally(s.response(a, step.Int()))
	},
	"interim": func(s *scriptedRace, step *scripttest.Step) { // with so many bytes, so many times
		a := s.attempt(step)
		n, times := step.Int(), 1
		if step.More() {
			times = step.Int()
		}
		for range times {
			a.Interim(&protocol.Response{Status: 103, Headers: []protocol.Header{{Name: []byte("link"), Value: make([]byte, n)}}})
		}
	},
	"interim-load": func(s *scriptedRace, step *scripttest.Step) { // an interim response with a header for sidecars
		s.attempt(step).Interim(&protocol.Response{Status: 103, Headers: []protocol.Header{{Name: []byte("x-remora-load"), Value: []byte("1")}, {Name: []byte("link")}}})
	},
	"fail": func(s *scriptedRace, step *scripttest.Step) { s.pending(step).Fail(s.failure(step)) },
	"finish": func(s *scriptedRace, step *scripttest.Step) {
		s.pending(step).Finish(step.Is("processed", "withdrawn"))
	},
	"presume": func(s *scriptedRace, step *scripttest.Step) { s.pending(step).Presume() },
	"started": func(s *scriptedRace, step *scripttest.Step) { s.attempt(step).Started() },
	"seen":    func(s *scriptedRace, step *scripttest.Step) { s.attempt(step).NoteSeen() },
	"answer": func(s *scriptedRace, step *scripttest.Step) { // to a probe
		s.svc.Probes.Answered(s.svc.Set.At(step.Int()), lb.Load{Pending: step.Int()})
	},
	// What the connections to endpoints do.
	"holds": func(s *scriptedRace, step *scripttest.Step) {
		wait := s.attempt(step).HoldsHead()
		switch {
		case wait <= 0:
			s.note("passes its head on")
		case wait < time.Millisecond:
			s.note("holds its head for a moment")
		default:
			s.note("holds its head for %d ms", wait.Round(time.Millisecond)/time.Millisecond)
		}
	},
	"replay": func(s *scriptedRace, step *scripttest.Step) {
		a := s.attempt(step)
		paid := a.PayReplay()
		if s.note("replay %d: %t", a.index, paid); paid {
			a.Replay()
		}
	},
	"encode": func(s *scriptedRace, step *scripttest.Step) { // once more, for a connection that it waited for
		a := s.attempt(step)
		req := a.Outgoing().Request()
		text := fmt.Sprintf("encode %d as %d, hedge %t, tied %t", a.index, req.Attempt, req.Hedge, req.Tied)
		for _, h := range req.Headers {
			text += fmt.Sprintf(", %s: %s", h.Name, h.Value)
		}
		s.note("%s", text)
	},
	// What other requests do.
	"busy": func(s *scriptedRace, step *scripttest.Step) { // the endpoint of an attempt gets another one
		ep := s.attempt(step).Endpoint()
		ep.Start(s.loop.Now())
		s.others = append(s.others, ep)
	},
	"idle": func(s *scriptedRace, _ *scripttest.Step) { // what made endpoints busy ends
		for _, ep := range s.others {
			ep.Drop()
		}
		s.others = nil
	},
	"judge": func(s *scriptedRace, step *scripttest.Step) { // so many hedges, which have saved nothing: hedges are useless after 64
		for range step.Int() {
			s.policy.HedgeRoute.Savings.Judge(s.loop.Now(), time.Millisecond, 0)
		}
	},
	"earn": func(s *scriptedRace, _ *scripttest.Step) { s.svc.Hedging.Primary(s.loop.Now(), s.policy.HedgeRoute) },
	// What the owner of the race and its caller do.
	"leave": func(s *scriptedRace, _ *scripttest.Step) { s.over(false) },
	"abort": func(s *scriptedRace, step *scripttest.Step) {
		f := s.failure(step)
		if s.race.Abort(f); !s.decided {
			s.race.Conclude(f)
		}
	},
	"await": func(s *scriptedRace, _ *scripttest.Step) { s.note("awaits %t", s.race.AwaitStart()) },
	"untie": func(s *scriptedRace, _ *scripttest.Step) { s.race.Untie() },
	"free":  func(s *scriptedRace, _ *scripttest.Step) { s.svc.Admission.GiveBack(&s.other.Place) }, // the slot of other
	"queue": func(s *scriptedRace, _ *scripttest.Step) { s.svc.Admission.Admit(&s.second.Place, &service.Ask{}) },
	"free-second": func(s *scriptedRace, _ *scripttest.Step) {
		if !s.second.HasSlot() {
			s.t.Error("the second has no slot")
		}
		s.svc.Admission.GiveBack(&s.second.Place)
	},
	"fill": func(s *scriptedRace, _ *scripttest.Step) { // takes all slots, and notices that there are no more
		for {
			p := &place{}
			p.Init(p)
			if s.svc.Admission.Admit(&p.Place, &service.Ask{Hedge: true}) != service.SlotGranted {
				return
			}
			s.filled = append(s.filled, p)
		}
	},
	"empty": func(s *scriptedRace, _ *scripttest.Step) { // gives back what fill has taken
		for _, p := range s.filled {
			s.svc.Admission.GiveBack(&p.Place)
		}
		s.filled = nil
	},
	"note": func(s *scriptedRace, _ *scripttest.Step) { s.note("undecided%s", s.recorded(nil)) },
	// What becomes of streams.
	"open": func(s *scriptedRace, step *scripttest.Step) { // pinned: of the session of the first one
		s.decided = true
		from := shard.Client{Listener: "in", Addr: "10.0.1.1:1", GRPC: s.grpc}
		if step.More() && step.Is("pinned", "new") {
			from.Session.Pin = s.svc.Sessions.Sticky.ID(s.addrs[0])
		}
		s.before = s.stream
		Open(s.svc, from, s.picked)
	},
	"other":     func(s *scriptedRace, _ *scripttest.Step) { s.stream, s.before = s.before, s.stream }, // stream that was opened
	"connected": func(s *scriptedRace, step *scripttest.Step) { s.stream.Connected(step.Int()) },
	"again": func(s *scriptedRace, step *scripttest.Step) {
		s.stream.Retry(s.failure(step), errors.New("refused"), s.pickedAgain)
	},
	"connected-closed": func(s *scriptedRace, step *scripttest.Step) { // in whatever order the loop hears of it
		s.stream.Connected(step.Int())
		s.stream.Close(true, 3, 4)
	},
	"failed-closed": func(s *scriptedRace, step *scripttest.Step) {
		s.stream.Failed(s.failure(step))
		s.stream.Close(true, 3, 4)
	},
	"failed": func(s *scriptedRace, step *scripttest.Step) { s.stream.Failed(s.failure(step)) },
	"refuse": func(s *scriptedRace, step *scripttest.Step) { s.source.Refuse(s.failure(step)) },
	"first": func(s *scriptedRace, _ *scripttest.Step) { // byte of the body
		if do := s.stream.OnFirstByte(); do != nil {
			do()
		} else {
			s.note("nobody awaits the first byte")
		}
	},
	"code": func(s *scriptedRace, step *scripttest.Step) {
		s.stream.NoteCode(protocol.GRPCCode(step.Int()), step.Is("said", "unsaid"))
	},
	"close": func(s *scriptedRace, step *scripttest.Step) {
		s.stream.Close(step.Is("connected", "unconnected"), 3, 4)
	},
}

// attempt takes the index of an attempt that was launched.
func (s *scriptedRace) attempt(step *scripttest.Step) *Attempt {
	i := step.Int()
	if i < 0 || i >= s.race.Launched {
		s.t.Fatalf("%s: there is no attempt %d", step.Name, i)
	}
	return &s.race.attempts[i]
}

// pending takes the index of an attempt that has not ended.
func (s *scriptedRace) pending(step *scripttest.Step) *Attempt {
	a := s.attempt(step)
	if a.state == attemptIdle {
		s.t.Fatalf("%s: attempt %d has ended", step.Name, a.index)
	}
	return a
}

// failure takes the code of a failure that an attempt, a stream or a race may have.
func (s *scriptedRace) failure(step *scripttest.Step) *fault.Failure {
	known := map[string]*fault.Failure{}
	for _, f := range []*fault.Failure{
		fault.Reset, fault.Connect, fault.Overloaded, fault.PoolExhausted, fault.NoSlot, fault.StreamLimit, fault.Malformed,
		fault.RequestTooLarge, fault.NotAllowed, fault.Deadline, fault.Shed, fault.RateLimited,
	} {
		known[f.Code] = f
	}
	return scripttest.Find(s.t, known, step.Word())
}

// response returns a response of an application to a.
func (s *scriptedRace) response(a *Attempt, status int) *Response {
	res := a.NewResponse()
	res.Status, res.HeadBuffer = status, s.shard.Buffers.GetRoom(100)
	res.HeadBuffer.B = append(res.HeadBuffer.B, "12345"...)
	res.Charge()
	return res
}
