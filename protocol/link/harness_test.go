package link

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/valyala/bytebufferpool"
)

// recorder is a Handler that records all calls and keeps the messages.
type recorder struct {
	events    []string
	requests  map[uint64]*protocol.Request
	responses map[uint64]*protocol.Response
	ttls      map[uint64]time.Duration
	codecs    map[uint64]protocol.Codec
	rejected  map[uint64]Reason
	bufs      []*bytebufferpool.ByteBuffer
	opened    func(version uint8, peer Settings)
	credited  func(n uint32)
	cancelled func(id uint64)
	acked     func(id uint64)
	peer      Settings
	version   uint8
}

func newRecorder() *recorder {
	return &recorder{
		requests:  map[uint64]*protocol.Request{},
		responses: map[uint64]*protocol.Response{},
		ttls:      map[uint64]time.Duration{},
		codecs:    map[uint64]protocol.Codec{},
		rejected:  map[uint64]Reason{},
	}
}

func (h *recorder) note(format string, args ...any) {
	h.events = append(h.events, fmt.Sprintf(format, args...))
}

func (h *recorder) OnPreface(version uint8, peer Settings) {
	h.version, h.peer = version, peer
	h.note("preface v%d frame=%d window=%d streams=%d features=%d", version, peer.MaxFrame, peer.Window, peer.MaxStreams, peer.Features)
	if h.opened != nil {
		h.opened(version, peer)
	}
}

func (h *recorder) NewRequest(uint64) *protocol.Request { return &protocol.Request{} }

// NewResponse refuses a second response, as whoever sent the request does.
func (h *recorder) NewResponse(id uint64) *protocol.Response {
	if h.responses[id] != nil {
		h.note("second response %d", id)
		return nil
	}
	return &protocol.Response{}
}

func (h *recorder) OnRequest(id uint64, req *protocol.Request, ttl time.Duration, buf *bytebufferpool.ByteBuffer) {
	h.note("request %d %s", id, showRequest(req, ttl))
	if h.requests[id] != nil {
		panic("request delivered twice")
	}
	h.requests[id], h.ttls[id] = req, ttl
	h.bufs = append(h.bufs, buf)
}

func (h *recorder) OnResponse(id uint64, resp *protocol.Response, codec protocol.Codec, buf *bytebufferpool.ByteBuffer) {
	h.note("response %d %s", id, showResponse(resp, codec))
	if h.responses[id] != nil {
		panic("response delivered twice")
	}
	h.responses[id], h.codecs[id] = resp, codec
	h.bufs = append(h.bufs, buf)
}

func (h *recorder) OnInterim(id uint64, resp *protocol.Response) {
	h.note("interim %d %s", id, showResponse(resp, protocol.CodecHTTP))
}

func (h *recorder) OnReject(id uint64, why Reason) {
	h.note("reject %d %s", id, why)
	h.rejected[id] = why
}

func (h *recorder) OnCancel(id uint64) {
	h.note("cancel %d", id)
	if h.cancelled != nil {
		h.cancelled(id)
	}
}

func (h *recorder) OnCancelAck(id uint64, d Dropped) {
	h.note("cancel_ack %d %s", id, d)
	if h.acked != nil {
		h.acked(id)
	}
}

func (h *recorder) OnCredit(n uint32) {
	h.note("credit %d", n)
	if h.credited != nil {
		h.credited(n)
	}
}
func (h *recorder) OnRefused(id uint64, why Reason)  { h.note("refused %d %s", id, why) }
func (h *recorder) OnStart(id uint64)                { h.note("start %d", id) }
func (h *recorder) OnWithdraw(id uint64)             { h.note("withdraw %d", id) }
func (h *recorder) OnPing(n uint64)                  { h.note("ping %d", n) }
func (h *recorder) OnPong(n uint64)                  { h.note("pong %d", n) }
func (h *recorder) OnGoAway(last uint64, why Reason) { h.note("goaway %d %s", last, why) }
func (h *recorder) OnStream(s Stream, rest []byte)   { h.note("stream %+v %q", s, rest) }

func (h *recorder) OnProbe()        { h.note("probe") }
func (h *recorder) OnLoad(l Load)   { h.noteLoad("load", l) }
func (h *recorder) OnAnswer(l Load) { h.noteLoad("answer", l) }

func (h *recorder) noteLoad(frame string, l Load) {
	h.note("%s pending=%d queued=%d latency=%v since=%v", frame, l.Pending, l.Queued, l.Latency, l.SinceResponse)
}

func showHeaders(sb *strings.Builder, name string, hs []protocol.Header) {
	for _, h := range hs {
		fmt.Fprintf(sb, " %s=%q:%q", name, h.Name, h.Value)
	}
}

func showRequest(req *protocol.Request, ttl time.Duration) string {
	var sb strings.Builder
	fmt.Fprintf(&sb, "codec=%d ttl=%v attempt=%d hedge=%t idempotent=%t service=%q method=%q path=%q authority=%q",
		req.Codec, ttl, req.Attempt, req.Hedge, req.Idempotent, req.Service, req.Method, req.Path, req.Authority)
	if req.OneWay {
		sb.WriteString(" one-way")
	}
	if req.Timed {
		sb.WriteString(" timed")
	}
	if req.Batch {
		sb.WriteString(" batch")
	}
	if req.Tied {
		sb.WriteString(" tied")
	}
	if req.Alone {
		sb.WriteString(" alone")
	}
	if req.Hold != 0 {
		fmt.Fprintf(&sb, " hold=%v", req.Hold)
	}
	showHeaders(&sb, "h", req.Headers)
	showHeaders(&sb, "t", req.Trailers)
	showBody(&sb, req.Body)
	return sb.String()
}

func showResponse(resp *protocol.Response, codec protocol.Codec) string {
	var sb strings.Builder
	fmt.Fprintf(&sb, "codec=%d status=%d reason=%q declared=%d", codec, resp.Status, resp.Reason, resp.DeclaredLength)
	if resp.StreamToken != nil {
		fmt.Fprintf(&sb, " token=%x", resp.StreamToken)
	}
	if resp.RPC != 0 {
		fmt.Fprintf(&sb, " rpc=%d", resp.RPC)
	}
	showHeaders(&sb, "h", resp.Headers)
	showHeaders(&sb, "t", resp.Trailers)
	showBody(&sb, resp.Body)
	return sb.String()
}

// showBody writes a short body, or the length and a checksum of a long one.
func showBody(sb *strings.Builder, b []byte) {
	if len(b) <= 64 {
		fmt.Fprintf(sb, " body=%q", b)
		return
	}
	fmt.Fprintf(sb, " body=%d:%x", len(b), crc32.ChecksumIEEE(b))
}

func headers(pairs ...string) (hs []protocol.Header) {
	for i := 0; i < len(pairs); i += 2 {
		hs = append(hs, protocol.Header{Name: []byte(pairs[i]), Value: []byte(pairs[i+1])})
	}
	return hs
}

// typical returns the request for which this package has budgets: a POST with 8
// headers and a body of 300 bytes. Two of its header values change with i.
func typical(i int) *protocol.Request {
	id := fmt.Sprintf("%032x", i)
	return &protocol.Request{
		Service: []byte("compute"), Method: []byte("POST"), Path: []byte("/v1/features?user=12345"),
		Authority: []byte("compute.internal:15001"),
		Headers: headers("content-type", "application/json", "accept", "*/*", "user-agent", "features/1.4 Go-http-client",
			"x-request-id", id, "traceparent", "00-"+id+"-00f067aa0ba902b7-01", "accept-encoding", "gzip",
			"x-tenant", "acme", "content-length", "300"),
		Body:       bytes.Repeat([]byte("0123456789"), 30),
		Idempotent: true,
	}
}

func typicalResponse() *protocol.Response {
	return &protocol.Response{
		Status: 200, Reason: []byte("OK"), DeclaredLength: -1,
		Headers: headers("content-type", "application/json", "server", "compute/2.1", "date", "Sat, 21 Nov 2026 09:00:00 GMT",
			"content-length", "300"),
		Body: bytes.Repeat([]byte("abcdefghij"), 30),
	}
}

// owners counts the owners given to a Writer and the released ones. A second release
// panics.
type owners struct{ given, released int }

type owned struct {
	all  *owners
	size int
	done bool
}

func (o *owners) next() Owner { o.given++; return &owned{all: o} }

func (o *owned) Buffered() int { return o.size }

func (o *owned) Release() {
	if o.done {
		panic("released twice")
	}
	o.done = true
	o.all.released++
}

// side is one end of a link.
type side struct {
	w *Writer
	r *Reader
	h *recorder
}

func newSide(role Role, s Settings, l ReaderLimits) *side {
	h := newRecorder()
	e := &side{NewWriter(), readerOf(role, s, l, h), h}
	e.w.Preface(role, s)
	e.h.opened = e.w.Open
	e.h.credited = e.w.Granted
	return e
}

// handlers is a handler for either side.
type handlers interface {
	RequestHandler
	ResponseHandler
}

func readerOf(role Role, s Settings, l ReaderLimits, h handlers) *Reader {
	if role == Dialer {
		return NewDialer(s, l, h)
	}
	return NewAcceptor(s, l, h)
}

// call makes r call h from now on.
func (r *Reader) call(h handlers) { r.handler, r.acceptor, r.dialer = h, h, h }

// newLink returns both ends of an open link.
func newLink(t testing.TB, s Settings, l ReaderLimits) (d, a *side) {
	t.Helper()
	d, a = newSide(Dialer, s, l), newSide(Acceptor, s, l)
	feed(t, a, d.w.Append(nil, 0))
	feed(t, d, a.w.Append(nil, 0))
	if d.h.version != MaxVersion || a.h.version != MaxVersion {
		t.Fatal("the link is not open")
	}
	d.h.events, a.h.events = nil, nil
	return d, a
}

func feed(t testing.TB, e *side, b []byte) {
	t.Helper()
	if err := e.r.Feed(b); err != nil {
		t.Fatalf("Feed: %v", err)
	}
}

// exchange moves bytes both ways until neither side has more.
func exchange(t testing.TB, d, a *side) {
	t.Helper()
	for d.w.Ready() || a.w.Ready() {
		feed(t, a, d.w.Append(nil, 64<<10))
		feed(t, d, a.w.Append(nil, 64<<10))
		d.w.Credit(d.r.TakeConsumed())
		a.w.Credit(a.r.TakeConsumed())
	}
}

// splits calls f with b whole, byte by byte, and cut at random.
func splits(t *testing.T, b []byte, f func(t *testing.T, parts [][]byte)) {
	t.Run("whole", func(t *testing.T) { f(t, [][]byte{b}) })
	t.Run("bytes", func(t *testing.T) {
		parts := make([][]byte, len(b))
		for i := range b {
			parts[i] = b[i : i+1]
		}
		f(t, parts)
	})
	for seed := range uint64(20) {
		t.Run(fmt.Sprint("seed", seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			var parts [][]byte
			for rest := b; len(rest) > 0; {
				n := 1 + rnd.IntN(min(len(rest), 1+rnd.IntN(200)))
				parts, rest = append(parts, rest[:n]), rest[n:]
			}
			f(t, parts)
		})
	}
}

// String returns the name in the recordings of these tests.
func (d Dropped) String() string {
	switch d {
	case CancelDropped:
		return "dropped"
	case CancelFinished:
		return "finished"
	case CancelClosed:
		return "closed"
	}
	return "at_app"
}
