package race

import (
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/service"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// loopStream is a stream on the loop of its service. It counts the stream, and gives the verdicts on the endpoint and on
// the service. The stream counts as load of its endpoint. Its outcome counts for outlier ejection. All fields belong to
// the loop, but carried is its carrier's.
type loopStream struct {
	service *service.Service
	state   streamState
	from    shard.Client
	passage service.Passage
	opened  *streamRace // that finds the endpoint; nil for the stream of a response, which is at its endpoint
	visit   *visit      // of the endpoint, if state says that the stream is there

	carried Stream
}

func (s *loopStream) init(svc *service.Service, from shard.Client) {
	s.service, s.from = svc, from
	s.carried = Stream{on: s, loop: svc.Shard.Loop, shared: svc.Shared, call: from.GRPC, code: protocol.GRPCCancelled}
}

// newResponseStream returns the stream of a response that comes from the endpoint of by, whose request has passed the
// bounds of svc. The attempt of by wins or loses the only race, with the head of
// the response.
func newResponseStream(svc *service.Service, by *visit, now time.Duration) *loopStream {
	s := &loopStream{state: streamOpen, visit: &visit{ep: by.ep, sent: now, stream: true, judged: true}}
	s.init(svc, shard.Client{})
	svc.Bounds.CountStream(&s.passage)
	s.visit.ep.OpenStream(now)
	svc.Stats.Streams++
	svc.Stats.StreamsOpen++
	return s
}

// connected is Stream.Connected on the loop. awaits says that the end of the stream gives the verdict.
func (s *loopStream) connected(now time.Duration, o outcome, awaits bool) {
	if !awaits || s.passage.Probes() { // others wait for a probe: the end of a call may be far off
		s.passage.Judge(now, o.service)
	}
	if !awaits || s.probesEndpoint() {
		s.judgeEndpoint(now, o)
	}
	if s.state == streamConnecting { // else Close was faster
		s.state.become(streamOpen)
		s.opened.Won(s.opened.attempt, nil)
	}
	st := &s.service.Stats
	st.Streams++
	st.StreamsOpen++
}

// fail counts the failure of the stream.
func (s *loopStream) fail(f *fault.Failure) {
	svc := s.service
	shard.ReportStream(svc.Shard, s.from, svc.Config.Name, f)
	svc.Stats.StreamsFailed++
	s.judge(svc.Shard.Loop.Now(), outcomeOf(f))
}

// judge gives the outcome to the breaker and to the endpoint, unless these have one already.
func (s *loopStream) judge(now time.Duration, o outcome) {
	s.passage.Judge(now, o.service)
	s.judgeEndpoint(now, o)
}

func (s *loopStream) judgeEndpoint(now time.Duration, o outcome) {
	if s.state.atEndpoint() {
		s.visit.judgeStream(now, o.endpoint, o.isError)
	}
}

// probesEndpoint reports whether the endpoint is ejected until a verdict.
func (s *loopStream) probesEndpoint() bool {
	if !s.state.atEndpoint() {
		return false
	}
	_, ejected := s.visit.ep.Ejected()
	return ejected
}

// await is Stream.await on the loop. The head of the response is the verdict on an endpoint that is ejected.
func (s *loopStream) await() (due bool) {
	due = !s.probesEndpoint()
	s.visit.judged = !due
	return due
}

// follow is Stream.Follow on the loop. awaits says that the end of the stream gives the verdict.
func (s *loopStream) follow(from shard.Client, p *service.Passage, awaits bool) {
	if s.from = from; awaits {
		p.Transfer(&s.passage)
	}
}

// end gives back what the stream holds: its endpoint, and the place among the streams of the service. It follows the
// last verdict.
func (s *loopStream) end(now time.Duration) {
	if s.opened != nil {
		s.opened.stop(now)
	} else {
		s.visit.end(now, stats.AttemptNone)
	}
	s.state.become(streamOver)
	s.passage.End()
}
