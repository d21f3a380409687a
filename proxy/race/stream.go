package race

import (
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/affinity"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/hedge"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/service"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// Stream tells the loop of a service how a stream fares, for the carrier of the stream. The carrier connects to the
// endpoint that Picked was given. It says by Connected that the endpoint has taken the stream, or asks by Retry for another
// endpoint. It ends the stream by Close.
//
// The Stream is made on the loop, and belongs to one carrier at a time: to the loop until it is handed over, then to
// goroutines. After Retry, Picked comes before the next call. On the way to the loop, values go by post; on
// the way back, with Picked. On the loop the stream is a loopStream.
//
// A nil Stream belongs to a stream without a service: Connected, NoteCode and Close do nothing.
type Stream struct {
	on     *loopStream            // belongs to the loop: the carrier only posts to it
	loop   loop.Loop              // of on
	shared *service.SharedService // of the service, with which the stream began

	// outcome is what Connected, NoteCode or Failed reported. It also goes with Close, which may overtake them on the
	// way to the loop.
	outcome outcome
	awaits  bool              // the end of the stream gives the verdict, not its head
	call    bool              // a gRPC call, which Close counts
	code    protocol.GRPCCode // what the call ended with

	heads      *hedge.Heads  // that learns when the first byte of the body has come; nil means nobody
	headsUntil time.Duration // until when that byte has come in time
}

// Picked gets an endpoint for the stream s to connect to. After the failure f the stream is closed, and s is nil.
// Picked is called on the loop, so it must not block. It is not called after the loop has stopped.
type Picked func(s *Stream, at Target, f *fault.Failure)

// Target is an endpoint to connect to.
type Target struct {
	Addr    string           // "ip:port"
	Host    string           // name that Addr was resolved from, or ""
	Link    bool             // a sidecar's link port: it expects the preface of a stream
	Cookies affinity.Cookies // for the response of the endpoint

	// Socket is a pipe to the endpoint, which takes one HTTP/1.1 request; nil means to dial Addr.
	// Who gets the Target closes or resets it. The pipe may not be open yet.
	Socket loop.Socket
}

// Opener opens streams at services. proxy.Worker is one.
type Opener interface {
	// Open begins a stream at the service. Any goroutine may call Open.
	Open(service string, picked Picked)
	// Failed counts a stream that is refused with f before it is opened. Any goroutine may
	// call it.
	Failed(f *fault.Failure)
	// From returns an Opener that says, where it counts and logs failures, who the stream came
	// from. Any goroutine may call it.
	From(c shard.Client) Opener
}

// outcome is a stream's verdict on its service, for the breaker, and what its attempt says of the endpoint.
type outcome struct {
	service  fault.Verdict
	endpoint stats.AttemptOutcome
	isError  bool // the endpoint responded with an error of 4xx or 5xx
}

func outcomeOfStatus(status int) outcome {
	o := outcome{fault.VerdictOf(status), stats.AttemptServed, status >= 400}
	if o.service == fault.VerdictBad {
		o.endpoint = stats.AttemptFailure
	}
	return o
}

func outcomeOf(f *fault.Failure) outcome { return outcome{service: f.Verdict(), endpoint: brokenBy(f)} }

// NewStream returns the Stream of the response that the carrier of the attempt is about to give to Respond, whose body
// arrives later. The loop is its first carrier. The race goes on with the head of the response, as with any response.
func (a *Attempt) NewStream() *Stream {
	r := a.race
	return &newResponseStream(r.Service, &a.visit, r.shard.Loop.Now()).carried
}

// await leaves the verdict to the end of a gRPC call that has begun, while the loop is the carrier. due reports
// whether the endpoint awaits it: one that is ejected does not.
func (s *Stream) await() (due bool) {
	s.awaits, s.outcome = true, outcomeOfStatus(200)
	return s.on.await()
}

// Follow makes the Stream count the end of the gRPC call that from has made, while the loop is the carrier. p is what
// let the request of the call pass.
func (s *Stream) Follow(from shard.Client, p *service.Passage) {
	if s.awaits {
		s.call, s.code = true, protocol.GRPCCancelled
	}
	s.on.follow(from, p, s.awaits)
}

// post has the loop call do.
func (s *Stream) post(do func(on *loopStream, now time.Duration)) {
	on, l := s.on, s.loop
	l.Post(func() { do(on, l.Now()) })
}

// Key is the key of the service, see loop.Destined.
func (s *Stream) Key() string { return s.shared.Key }

// TLS is the tls block of the service with which the stream began, also after a reload.
func (s *Stream) TLS() *config.ServiceTLS { return s.shared.TLS }

// Call reports whether the stream is a gRPC call whose end counts.
func (s *Stream) Call() bool { return s != nil && s.call }

// Retry asks for another endpoint after the last one did not accept the stream. why is fault.Connect, with
// the error of the dial in err, or why the endpoint refused the stream, whose err is not looked at.
// fault.Reset means that the endpoint was lost. Without another endpoint the stream fails.
func (s *Stream) Retry(why *fault.Failure, err error, picked Picked) {
	s.post(func(on *loopStream, _ time.Duration) { on.opened.retry(why, err, picked) })
}

// Connected notes that the stream is open: its endpoint accepted it, or the head of the
// response has arrived. The breaker and outlier ejection count the status; 0 means none. Of a gRPC
// call they count the code that it ends with, if the status is 200.
func (s *Stream) Connected(status int) {
	if s == nil {
		return
	}
	o, awaits := outcomeOfStatus(status), s.call && status == 200
	s.outcome, s.awaits = o, awaits
	s.post(func(on *loopStream, now time.Duration) { on.connected(now, o, awaits) })
}

// OnFirstByte returns what the carrier, which passes a body on, calls when the first byte of it has arrived. nil means
// nothing.
func (s *Stream) OnFirstByte() func() {
	if s == nil || s.heads == nil {
		return nil
	}
	heads, until := s.heads, s.headsUntil
	return func() {
		s.post(func(_ *loopStream, now time.Duration) {
			if now < until {
				heads.Followed()
			}
		})
	}
}

// NoteCode notes the code that a gRPC call has ended with. said reports whether the endpoint said it:
// then it is the verdict on a call that has begun. Without it Close counts the call as cancelled.
func (s *Stream) NoteCode(c protocol.GRPCCode, said bool) {
	if s == nil {
		return
	}
	s.code = c
	if s.awaits && said {
		s.outcome = outcomeOfStatus(fault.StatusOfGRPC(c))
	}
}

// Failed counts a stream that failed after its endpoint had accepted the connection.
func (s *Stream) Failed(f *fault.Failure) {
	s.outcome = outcomeOf(f)
	s.post(func(on *loopStream, _ time.Duration) { on.fail(f) })
}

// Close ends the Stream. connected reports whether Connected was called; sent and received are bytes to and from the
// endpoint.
func (s *Stream) Close(connected bool, sent, received int64) {
	if s == nil {
		return
	}
	o, call, code := s.outcome, s.call, s.code
	s.post(func(on *loopStream, now time.Duration) {
		st := &on.service.Stats
		on.judge(now, o)
		if call {
			st.GRPC[code]++
		}
		if connected {
			st.StreamsOpen--
		}
		st.StreamBytesIn += uint64(sent)
		st.StreamBytesOut += uint64(received)
		on.end(now)
	})
}
