package http2

import (
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http2"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/mux"
	"github.com/remora-proxy/remora/proxy/race"
)

// call is one request on a connection. Its stream is over while it lingers.
type call struct {
	c       *conn
	st      *http2.Stream // nil once it is over
	attempt *race.Attempt // nil for a stream whose bytes go by flow
	flow    *flow         // nil for a message

	index int    // in conn.calls
	born  uint64 // conn.outputs when it was sent
	sent  bool   // all of the request was sent
	left  int    // bytes of it that waited when starvation was last checked

	response *race.Response // being received; nil before its head
	size     int            // bytes of its body so far
	least    int64          // bytes that its body will have at least, as it says; 0 or less if that is unknown
	grown    bool           // in conn.partial
	held     bool           // it is a stream whose head is held until the first byte of its body
	pause    loop.Timer     // armed while the response is incomplete and may be a stream
}

// freeCalls are calls for the next requests of a loop.
type freeCalls struct{ list []*call }

// maxFree bounds the list; the garbage collector gets the rest.
const maxFree = 4096

func (f *freeCalls) take() *call {
	n := len(f.list)
	if n == 0 {
		s := new(call)
		s.pause.Fire = s.onPause
		return s
	}
	s := f.list[n-1]
	f.list[n-1] = nil
	f.list = f.list[:n-1]
	return s
}

func (f *freeCalls) put(s *call) {
	*s = call{pause: s.pause}
	if len(f.list) < maxFree {
		f.list = append(f.list, s)
	}
}

var trailersWanted = protocol.Header{Name: []byte("te"), Value: []byte("trailers")}

// begin sends the request of a.
func (c *conn) begin(a *race.Attempt) {
	req, own := a.Outgoing().ForApplication()
	if string(req.Method) != "GET" && protocol.IsGRPC(req.Headers) {
		req.Headers = append(req.Headers, trailersWanted)
	}
	st := c.h2.Request(req, c.scheme(), nil)
	req.Headers = req.Headers[:own]
	s := c.pool.free.take()
	s.attempt = a
	a.Carry(s, a.ID())
	c.adopt(s, st)
	c.unsent++
	c.schedule(len(c.calls) == 1 || c.h2.Encoded() >= mux.BatchSize) // much counts before the turn ends
}

// adopt makes st the stream of s, which is sent with the next output.
func (c *conn) adopt(s *call, st *http2.Stream) {
	if len(c.calls) == 0 {
		c.heard = false
	}
	s.c, s.st, s.born, s.index = c, st, c.outputs, len(c.calls)
	st.Owner = s
	c.calls = append(c.calls, s)
}

// scheme is that of the requests.
func (c *conn) scheme() string {
	if c.pool.service.Config.TLS.Enabled() {
		return "https"
	}
	return "http"
}

// detach takes the call off its connection, recycles it, and returns its attempt. The connection
// may carry another request afterwards; the caller says so by onFree.
func (s *call) detach() *race.Attempt {
	c, a := s.c, s.attempt
	last := len(c.calls) - 1
	moved := c.calls[last]
	c.calls[s.index], moved.index = moved, s.index
	c.calls[last] = nil
	c.calls = c.calls[:last]
	if a != nil && !s.sent {
		c.unsent--
	}
	s.dropResponse()
	if a != nil {
		a.Detach()
	}
	c.pool.free.put(s)
	return a
}

// dropResponse releases what has arrived of the response.
func (s *call) dropResponse() {
	s.c.shard.Loop.Stop(&s.pause)
	s.c.partial.remove(s)
	if s.response != nil {
		s.response.Release()
		s.response = nil
	}
}

// onFree is called when a request is over. The codec may not know yet, so what that means is
// decided at the end of its work. What the codec has to send goes out then, too.
func (c *conn) onFree() {
	if c.freed = true; !c.feeding {
		c.shard.Loop.Defer(&c.out)
	}
}

// reuse gives the room of requests that are over to others.
func (c *conn) reuse() {
	if !c.freed {
		return
	}
	c.freed = false
	if c.state == open {
		c.pool.onRoom(c)
	}
	c.finishDrain()
}

// fail ends the call, and its attempt with f.
func (s *call) fail(f *fault.Failure) {
	c := s.c
	a := s.detach()
	c.onFree()
	a.Fail(f)
}

// reset ends the stream from this side.
func (s *call) reset(code http2.Code) {
	s.c.h2.Reset(s.st, code)
	s.st = nil
}

// endRequest ends the stream behind a complete response. The endpoint wants no more of the request,
// whose memory goes.
func (s *call) endRequest() {
	if !s.sent {
		s.reset(http2.Cancel)
	}
	s.st = nil
}

// holds returns the bytes held for the response.
func (s *call) holds() int {
	if s.response == nil {
		return 0
	}
	return s.response.Held
}

// Buffered implements race.Carrier.
func (s *call) Buffered(*race.Attempt) int { return s.holds() }

// Abort implements race.Carrier.
func (s *call) Abort(*race.Attempt) {
	c := s.c
	s.withdraw()
	s.detach()
	c.onFree()
}

// Renew implements race.Renewer.
func (s *call) Renew() { s.c.drain() }

// withdraw resets the stream.
func (s *call) withdraw() {
	if s.st != nil {
		s.reset(http2.Cancel)
		s.c.shard.Loop.Defer(&s.c.out)
	} else {
		s.c.withdrawn.remove(s)
	}
}

// Cancel implements race.Carrier. The attempt lingers until the endpoint has read the reset: one
// that is frozen does not, and goes on counting as busy.
func (s *call) Cancel(*race.Attempt) (lingers bool) {
	c := s.c
	unsent := s.born == c.outputs
	s.withdraw()
	if unsent {
		s.detach()
		c.onFree()
		return false
	}
	if !s.sent {
		s.sent = true
		c.unsent--
	}
	s.dropResponse()
	c.shard.Stats.Cancels++
	c.withdrawn.add(c, s)
	return true
}
