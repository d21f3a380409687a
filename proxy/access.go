package proxy

import (
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/accesslog"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/trace"
)

// accessLog is one loop's part of the access log.
type accessLog struct {
	loop  Loop
	now   func() time.Time // the time of day; zero where there is none
	rnd   *rand.PCG        // samples what has no id
	rules *config.AccessLog
	feed  accesslog.Feed
	flush Timer
}

// accessFlush is how long a line waits for others to be written with.
const accessFlush = 100 * time.Millisecond

func (l *accessLog) init(loop Loop, now func() time.Time, rnd *rand.PCG) {
	l.loop, l.now, l.rnd = loop, now, rnd
	l.flush.Fire = l.feed.Flush
}

// configure logs by rules to lines from now on; nil: nothing.
func (l *accessLog) configure(rules *config.AccessLog, lines *accesslog.Queue) {
	l.rules = rules
	l.feed.Use(lines)
}

// on reports whether lines are written.
func (l *accessLog) on() bool { return l.feed.On() }

// flushNow hands on the lines that wait.
func (l *accessLog) flushNow() { l.feed.Flush() }

// finished logs the end of an exchange for its caller. Of an answer that is a
// stream the line follows at its end.
func (ex *exchange) log(c *conclusion, now time.Duration) {
	l := &ex.w.access
	id := ex.id()
	lasts := c.ans != nil && c.ans.stream != nil
	if !lasts && !l.keeps(c.outcome.failed(), now-ex.began, id) {
		return
	}
	r := accesslog.Record{
		RequestID: id, Outcome: c.outcome.String(), BytesIn: int64(ex.size()), BytesOut: int64(c.bytes()),
		Duration: now - ex.began, Queued: ex.queued, Attempts: ex.n, Hedges: ex.hedges,
	}
	describe(&r, ex.from, ex)
	r.Time = l.wall(now - ex.began)
	if ex.route != nil {
		r.Service = ex.route.svc.cfg.Name
	}
	for i := range ex.attempts[:ex.n] {
		a := &ex.attempts[i]
		if a.kind == retryAttempt {
			r.Retries++
		}
		if a.ep != nil {
			r.Endpoint = a.ep.Addr
		}
		if a.state == attemptWaiting && a.waiting.list != nil { // for a slot, not for a connection
			r.Queued += now - a.waiting.since
		}
	}
	if c.failure != nil {
		r.Status, r.Error = c.failure.Status, c.failure.Code
	}
	if c.ans != nil {
		r.Status = c.ans.Status
		r.Endpoint, r.HedgeWon = c.by.ep.Addr, c.by.kind == hedgeAttempt
	}
	if lasts {
		r.Stream, r.BytesOut = LeftAnswer.String(), 0
		c.ans.stream.Trail = l.trail(&r)
		return
	}
	l.add(&r)
}

// logRefused logs what is answered with f and never began. ex is nil where no request
// could be read.
func logRefused(l *accessLog, from replier, ex *exchange, f *Failure) {
	if !l.on() {
		return
	}
	r := accesslog.Record{Outcome: OutcomeFailed.String(), Status: f.Status, Error: f.Code}
	if ex != nil {
		r.RequestID, r.BytesIn = ex.id(), int64(ex.size())
	}
	if !l.keeps(true, 0, r.RequestID) {
		return
	}
	describe(&r, from, ex)
	r.Time = l.wall(0)
	l.add(&r)
}

// describe says who asked for what.
func describe(r *accesslog.Record, from replier, ex *exchange) {
	at := from.at()
	r.Listener, r.Protocol, r.Client = at.name, at.protocol, from.peer()
	if ex == nil {
		return
	}
	req := &ex.req
	r.Method, r.Authority, r.Path, r.TraceID = req.Method, req.Authority, req.Path, traceID(req.Headers)
	if ex.asked != nil {
		r.Path = ex.asked
	}
}

// add writes the line of r, with others in a moment.
func (l *accessLog) add(r *accesslog.Record) {
	if l.feed.Add(r) {
		l.loop.After(accessFlush, &l.flush)
	}
}

// wall is the time of day so long ago, or zero when the process has no clock.
func (l *accessLog) wall(ago time.Duration) (t time.Time) {
	if t = l.now(); !t.IsZero() {
		t = t.Add(-ago)
	}
	return t
}

// keeps tells whether there is to be a line. Which requests are sampled hangs on
// their ids, so that the sidecars on a request's way log the same ones.
func (l *accessLog) keeps(failed bool, took time.Duration, id []byte) bool {
	c := l.rules
	switch {
	case c.Sample == 1, c.Failed && failed, c.Slow > 0 && took >= c.Slow:
		return true
	case c.Sample == 0:
		return false
	case len(id) == 0:
		return fractionOf(l.rnd.Uint64()) < c.Sample
	}
	return fractionOf(hash(id)) < c.Sample
}

// fractionOf spreads random bits over [0, 1).
func fractionOf(x uint64) float64 { return float64(x>>11) / (1 << 53) }

// hash takes eight bytes at a time, for that is done to every request: ids are 32
// bytes, mostly.
func hash(b []byte) uint64 {
	h := uint64(len(b))
	for ; len(b) >= 8; b = b[8:] {
		h = fold(h ^ binary.LittleEndian.Uint64(b))
	}
	for _, c := range b {
		h = fold(h ^ uint64(c))
	}
	return fold(h) // once more: ids may differ in their last digit alone
}

// fold has each bit of x count for all bits: both halves of a product of 128.
func fold(x uint64) uint64 {
	hi, lo := bits.Mul64(x, 0x9e3779b97f4a7c15)
	return hi ^ lo
}

// id is the request's, or nil.
func (ex *exchange) id() []byte {
	if ex.requestID != nil {
		return ex.requestID
	}
	return requestIDOf(ex.req.Headers)
}

// requestIDOf is the id of a request that comes over a link, or nil: a header at the
// end of the list or near it, where arrive puts it.
func requestIDOf(headers []protocol.Header) []byte {
	for _, h := range slices.Backward(headers) {
		if len(h.Name) == len(nameRequestID) && protocol.EqualFold(h.Name, "x-request-id") {
			return h.Value
		}
	}
	return nil
}

// traceID is that of the request's trace in hexadecimal, or nil.
func traceID(hs []protocol.Header) []byte {
	if _, at, ok := traceContext(hs); ok {
		return trace.IDText(hs[at].Value)
	}
	return nil
}
