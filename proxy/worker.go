package proxy

import (
	"math/rand/v2"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/dubbo"
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/config"
)

// Worker is everything that one loop owns: its view of the services, the
// routes, the sessions accepted on it, and the free lists. A request lives on
// one worker from its first byte to its last.
type Worker struct {
	proc     *Process
	index    int // among the workers
	loop     Loop
	log      *quietLog // of what peers do
	rnd      *rand.PCG
	ids      rand.PCG // of requests; apart from rnd, whose order tests replay
	tracer   tracer
	wall     wallTime
	stats    WorkerStats
	millis   *milliseconds // apart, since the collector need not look into it
	sessions sessionList
	access   accessLog

	// By the Generation in use.
	generation uint64
	cfg        *config.Config
	services   map[string]*service
	former     map[string]*service // that the latest change has removed
	planned    []*route            // all, as Generation.routes lists them
	table      *routeTable         // those of the configuration; of a split the first
	direct     map[string]*route   // of listeners with a fixed service, by service
	httpLimits *http1.Limits
	noLimit    *http1.Limits // httpLimits for bodies of any length
	linkLimits link.ReaderLimits

	exchanges []*exchange // free
	answers   []*answer   // free
	scratch   []byte      // for encoding; valid within one callback
	buffers   protocol.Buffers
	trimmer   Timer // armed while buffers keeps something

	call       dubbo.Call       // being converted
	invocation dubbo.Invocation // being read
	heldDelta  int64            // bytes not yet told to the ledger
	shedding   Flush            // past the hard mark: closes the greediest
}

// Logger takes what an operator should know of, with key-value pairs as in
// log/slog, whose *Logger is one. It must not block.
type Logger interface {
	Warn(msg string, args ...any)
}

// maxFree bounds the free lists; what is freed beyond it is left to the garbage
// collector.
const maxFree = 4096

// ledgerStep is how many bytes a loop may hold or free before it tells the
// process.
const ledgerStep = 64 << 10

// NewWorker adds a worker for loop to p. All workers are added before the first
// connection, on one goroutine; the loop's own callbacks use it from then on.
// seed feeds the picks of endpoints.
func NewWorker(p *Process, loop Loop, log Logger, seed uint64) *Worker {
	w := &Worker{
		proc: p, index: len(p.workers), loop: loop, log: newQuietLog(log, loop),
		rnd:    rand.NewPCG(seed, uint64(len(p.workers))),
		ids:    *rand.NewPCG(uint64(len(p.workers)), seed),
		tracer: tracer{rnd: *rand.NewPCG(^seed, uint64(len(p.workers)))},
		millis: new(milliseconds),
	}
	w.shedding.Do = w.shedAll
	w.initBuffers()
	w.access.init(w)
	g := p.current.Load()
	w.prepare(g)
	w.switchTo(g, &Generation{})
	p.workers = append(p.workers, w)
	for _, w := range p.workers {
		w.boundBuffers()
	}
	return w
}

// bodyLimits are those of a body that is received: of any length where it can
// leave the loop when it has become too long for a message.
func (w *Worker) bodyLimits() *http1.Limits {
	if w.proc.streams == nil {
		return w.httpLimits
	}
	return w.noLimit
}

// exchange takes one from the free list.
func (w *Worker) exchange(from replier) *exchange {
	n := len(w.exchanges)
	if n == 0 {
		ex := &exchange{w: w, from: from}
		ex.deadline.Fire = ex.onDeadline
		ex.hedge.Fire = ex.onHedgeTimer
		for i := range ex.attempts {
			ex.attempts[i].ex = ex
		}
		return ex
	}
	ex := w.exchanges[n-1]
	w.exchanges[n-1] = nil
	w.exchanges = w.exchanges[:n-1]
	ex.from = from
	return ex
}

// recycle returns an exchange that never began.
func (w *Worker) recycle(ex *exchange) {
	ex.releaseRequest()
	w.reuse(ex)
}

// reuse returns an exchange whose request memory is released and whose attempts are
// over.
func (w *Worker) reuse(ex *exchange) {
	ex.from, ex.route, ex.svc, ex.bounds, ex.pass = nil, nil, nil, nil, passNone
	ex.tag, ex.retries, ex.free, ex.hedges, ex.missed = 0, 0, 0, 0, 0
	ex.lastFail, ex.reached = nil, false
	ex.requestID, ex.stopped, ex.unhedged, ex.marked = nil, nil, false, false
	if cap(ex.forwarded) > maxForwarded {
		ex.forwarded = nil
	}
	if cap(ex.path) > maxRewritten {
		ex.path = nil
	}
	if cap(ex.traceState.Text) > maxTraceState {
		ex.traceState.Text = nil
	}
	ex.failedAt[0], ex.bestOf = nil, nil
	ex.queued, ex.asked = 0, nil
	for i := range ex.attempts[:ex.n] { // an endpoint that leaves is not kept here
		ex.attempts[i].ep, ex.attempts[i].up = nil, nil
	}
	ex.n, ex.tried = 0, [maxAttempts]*lb.Endpoint{}
	ex.state = exchangeIdle
	if len(w.exchanges) < maxFree {
		w.exchanges = append(w.exchanges, ex)
	}
}

// hold counts the request's memory against limits.buffered, again when it has grown.
func (ex *exchange) hold() {
	n := protocol.Held(ex.head) + protocol.Held(ex.body)
	ex.w.held(n - ex.held)
	ex.held = n
}

// size is how many bytes the request is.
func (ex *exchange) size() int { return length(ex.head) + length(ex.body) }

func length(b *bytebufferpool.ByteBuffer) int {
	if b == nil {
		return 0
	}
	return len(b.B)
}

func (ex *exchange) releaseRequest() {
	if ex.head != nil {
		ex.w.buffers.Put(ex.head)
		ex.head = nil
	}
	if ex.body != nil {
		ex.w.buffers.Put(ex.body)
		ex.body = nil
	}
	ex.w.held(-ex.held)
	ex.held = 0
	ex.req.Reset()
}

// held counts bytes of messages taken into memory (n > 0) or released.
func (w *Worker) held(n int) {
	w.heldDelta += int64(n)
	if w.heldDelta >= ledgerStep || w.heldDelta <= -ledgerStep {
		w.proc.ledger.bytes.Add(w.heldDelta)
		if w.heldDelta > 0 && w.proc.ledger.over(0) {
			w.loop.Defer(&w.shedding)
		}
		w.heldDelta = 0
	}
}

// answer is one response in memory, with what its slices alias. It has one
// owner at a time, who calls Release.
type answer struct {
	protocol.Response
	codec protocol.Codec
	w     *Worker
	head  *bytebufferpool.ByteBuffer
	body  *bytebufferpool.ByteBuffer
	held  int           // bytes of both, and of what stream has, counted against limits.buffered
	date  [dateLen]byte // the value of a Date that was added

	stream *StreamSource // of what body does not hold; nil: Body is all
	token  link.Token    // that StreamToken points to
}

// answer takes one from the free list, empty.
func (w *Worker) answer() *answer {
	n := len(w.answers)
	if n == 0 {
		return &answer{w: w, Response: protocol.Response{DeclaredLength: -1}}
	}
	ans := w.answers[n-1]
	w.answers = w.answers[:n-1]
	return ans
}

// hold counts the answer's memory, again when it has grown.
func (ans *answer) hold() {
	n := protocol.Held(ans.head) + protocol.Held(ans.body)
	if ans.stream != nil {
		n += protocol.Held(ans.stream.Buffer)
	}
	ans.w.held(n - ans.held)
	ans.held = n
}

// size is how many bytes the answer is, or is here of it.
func (ans *answer) size() int {
	n := length(ans.head) + length(ans.body)
	if ans.stream != nil {
		n += length(ans.stream.Buffer)
	}
	return n
}

// takeStream makes the stream the caller's.
func (ans *answer) takeStream() *StreamSource {
	src := ans.stream
	ans.stream = nil
	return src
}

// Release gives the answer's memory back, and up a stream that nobody took.
func (ans *answer) Release() {
	if ans.stream != nil {
		ans.takeStream().Close()
	}
	if ans.head != nil {
		ans.w.buffers.Put(ans.head)
	}
	if ans.body != nil {
		ans.w.buffers.Put(ans.body)
	}
	ans.w.held(-ans.held)
	ans.head, ans.body, ans.held, ans.codec = nil, nil, 0, protocol.CodecHTTP
	ans.Response.Reset()
	if w := ans.w; len(w.answers) < maxFree {
		w.answers = append(w.answers, ans)
	}
}

// maxScratch bounds the encoding buffer that a worker keeps between callbacks.
const maxScratch = 256 << 10

// keepScratch takes the encoding buffer back after it may have grown.
func (w *Worker) keepScratch(b []byte) {
	w.scratch = nil
	if cap(b) <= maxScratch {
		w.scratch = b[:0]
	}
}
