package proxy

import (
	"bytes"
	"errors"
	"time"

	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/protocol/link"
)

// linkSettings are what this sidecar announces on its links.
func linkSettings(of *shared) link.Settings {
	s := link.Settings{MaxStreams: maxStreams}
	if of.streams {
		s.Features = link.FeatureStreams
	}
	return s
}

// replyStream answers with ans, whose body the other sidecar fetches over a
// connection of its own. When too many wait for that, it is told that the answer is
// too long for a message.
func (s *linkSession) replyStream(ex *exchange, ans *answer) {
	src := ans.takeStream()
	var ok bool
	if ans.token, ok = s.worker.streamer.Park(src); !ok {
		src.Refuse(FailTooLarge)
		ans.Release()
		s.worker.stats.failed(FailTooLarge)
		s.w.Refused(ex.tag, FailTooLarge.Reason())
		return
	}
	s.worker.stats.Left[LeftParked]++
	ans.StreamToken = ans.token[:]
	ans.hold()
	s.w.Response(ex.tag, &ans.Response, ans.codec, ans)
}

// OnStream: the connection carries a stream, and leaves the loop with it.
func (s *linkSession) OnStream(st link.Stream, rest []byte) {
	w := s.worker
	if f := s.mayTake(&st); f != nil {
		s.refuseStream(&st, f)
		return
	}
	peer, err := s.conn.Detach()
	switch {
	case err == nil:
	case err == ErrDetachClosed: // OnClose is to come
		return
	case errors.Is(err, errors.ErrUnsupported):
		s.refuseStream(&st, FailUnsupported)
		return
	default: // the system has no descriptor left
		s.refuseStream(&st, FailOverloaded)
		return
	}
	s.close()
	w.stats.Left[LeftAccepted]++
	a := &StreamAccept{
		Leaser: w.leaser, Service: s.door.direct.svc.cfg.Name, Timeout: s.patience(&st), Stream: st, Rest: bytes.Clone(rest),
	}
	if st.Kind != link.StreamAnswer { // of a request that has its own
		a.Trail = logStream(&w.access, streamOpaque, s, nil, a.Service)
	}
	w.streamer.Accept(peer, a)
}

// mayTake applies the limits of listener and process. What fetches the rest of an
// answer is part of a request that has passed them.
func (s *linkSession) mayTake(st *link.Stream) *Failure {
	switch {
	case !s.worker.shared.streams:
		return FailUnsupported
	case st.Kind == link.StreamAnswer:
		return nil
	case s.worker.shared.draining.Load():
		return FailDraining
	case s.opaque() && st.Kind == link.StreamHTTP:
		return FailNoRoute
	case s.door.limited(s.worker.loop.Now()):
		return FailRateLimited
	case s.worker.shared.budget.full(s.held):
		return FailOverloaded
	}
	return nil
}

// patience is how long the endpoint may take: as long as the other sidecar waits,
// but not longer than for any request.
func (s *linkSession) patience(st *link.Stream) time.Duration {
	if st.TimeLeft == 0 {
		return s.door.direct.timeout
	}
	return min(st.TimeLeft, s.door.direct.timeout)
}

// refuseStream tells why a stream is not taken, in the words of its kind.
func (s *linkSession) refuseStream(st *link.Stream, f *Failure) {
	s.worker.stats.failed(f)
	logRefused(&s.worker.access, s, nil, f)
	out := []byte{byte(f.Reason())}
	if st.Kind == link.StreamHTTP {
		out = appendFailure(nil, f, s.worker.dateValue(), nil, http1.ResponseFlags{Minor: 1, Close: true})
	}
	s.conn.Write(out)
	s.conn.Drain()
	s.close()
}
