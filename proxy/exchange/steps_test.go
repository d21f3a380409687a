package exchange

import (
	"time"

	"github.com/remora-proxy/remora/internal/scripttest"
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/race"
)

// take takes the steps of a part.
func (s *scriptedExchange) take(p *scripttest.Part) {
	s.t.Helper()
	p.Each(s.t, func(step *scripttest.Step) {
		if step.Name == "run" {
			s.world.Run(step.Duration())
			return
		}
		take := scripttest.Find(s.t, steps, step.Name)
		s.do(func() { take(s, step) })
	})
	s.world.Run(2 * time.Millisecond) // what was posted; the millisecond of the end is counted then
}

// steps are the steps of a script, but for the one that lets time pass.
var steps = map[string]func(s *scriptedExchange, step *scripttest.Step){
	"begin": func(s *scriptedExchange, _ *scripttest.Step) { s.ex.Begin(s.route, &s.at) },
	// What the endpoint does.
	"respond": func(s *scriptedExchange, step *scripttest.Step) { s.attempt().Respond(s.response(step.Int())) },
	"call": func(s *scriptedExchange, step *scripttest.Step) { // the response to a gRPC call
		res := s.response(200)
		res.Headers = append(res.Headers, protocol.Header{Name: []byte("grpc-status"), Value: []byte(step.Word())})
		s.attempt().Respond(res)
	},
	"stream": func(s *scriptedExchange, _ *scripttest.Step) { // a response whose body goes on
		res := s.response(200)
		res.Source = &race.StreamSource{Buffer: protocol.Unowned().GetRoom(100), Stream: s.attempt().NewStream()}
		res.Source.Buffer.B = append(res.Source.Buffer.B, "body"...)
		res.Charge()
		s.attempt().Respond(res)
	},
	"close": func(s *scriptedExchange, _ *scripttest.Step) { // by the caller
		if s.body == nil {
			s.t.Fatal("there is no stream")
		}
		s.body.Close()
	},
	"borrow": func(s *scriptedExchange, _ *scripttest.Step) { // a response that has lines in place of headers
		res := s.pool.Response()
		res.Borrow(200, []byte("A: b\r\n"), []byte("body"), nil, false)
		s.attempt().Respond(res)
	},
	"interim": func(s *scriptedExchange, _ *scripttest.Step) { s.attempt().Interim(&protocol.Response{Status: 103}) },
	"fail":    func(s *scriptedExchange, step *scripttest.Step) { s.attempt().Fail(s.failure(step)) },
	"attempt": func(s *scriptedExchange, step *scripttest.Step) { // of the steps that follow
		i := step.Int()
		if i >= len(s.attempts) {
			s.t.Fatalf("there is no attempt %d", i)
		}
		s.current = s.attempts[i]
	},
	"finish":  func(s *scriptedExchange, _ *scripttest.Step) { s.attempt().Finish(true) },
	"presume": func(s *scriptedExchange, _ *scripttest.Step) { s.attempt().Presume() },
	// What the caller and its session do.
	"leave":   func(s *scriptedExchange, _ *scripttest.Step) { s.note("leaves; attempts are left: %t", s.ex.Cancel()) },
	"shed":    func(s *scriptedExchange, _ *scripttest.Step) { s.ex.Shed() },
	"abandon": func(s *scriptedExchange, _ *scripttest.Step) { s.ex.AbandonNow() },
	"await":   func(s *scriptedExchange, _ *scripttest.Step) { s.note("awaits its start: %t", s.ex.AwaitStart()) },
	"untie":   func(s *scriptedExchange, _ *scripttest.Step) { s.ex.Untie() },
	"open": func(s *scriptedExchange, _ *scripttest.Step) {
		s.note("open %t, may have been processed %t, no hedge %t, %d bytes of attempts", s.ex.Open(), s.ex.MaybeProcessed(), s.ex.NoHedge, s.ex.Buffered()-s.ex.Held)
	},
	"free": func(s *scriptedExchange, _ *scripttest.Step) { s.svc.Admission.GiveBack(&s.other.Place) }, // the slot of another request
	// What the filter does that holds the exchange.
	"resume": func(s *scriptedExchange, _ *scripttest.Step) { s.held.Resume() },
	"refuse": func(s *scriptedExchange, step *scripttest.Step) { s.held.Refuse(s.failure(step)) },
	"answer": func(s *scriptedExchange, step *scripttest.Step) { s.held.Answer(s.response(step.Int())) },
}

// attempt returns the attempt that steps are of: the latest one, unless a step has named another.
func (s *scriptedExchange) attempt() *race.Attempt {
	if s.current == nil {
		s.t.Fatal("there is no attempt")
	}
	return s.current
}

// failure takes the code of a failure that an attempt or a filter may have.
func (s *scriptedExchange) failure(step *scripttest.Step) *fault.Failure {
	known := map[string]*fault.Failure{}
	for _, f := range []*fault.Failure{fault.Reset, fault.Injected, fault.Malformed, fault.Overloaded} {
		known[f.Code] = f
	}
	return scripttest.Find(s.t, known, step.Word())
}

// response returns a response that an application or a filter may give.
func (s *scriptedExchange) response(status int) *race.Response {
	res := s.pool.Response()
	res.Status, res.HeadBuffer = status, s.shard.Buffers.GetRoom(100)
	res.HeadBuffer.B = append(res.HeadBuffer.B, "12345"...)
	res.Charge()
	return res
}
