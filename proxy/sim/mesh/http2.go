package mesh

import (
	"slices"
	"strconv"
	"time"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http2"
	"github.com/remora-proxy/remora/proxy/loop"
)

// http2Conn is the connection of a caller or an application that speaks HTTP/2, between its loop
// and its codec.
type http2Conn struct {
	http2.Conn
	conn    loop.Conn // nil before it is open, and once closed
	onWrong func(why error)
	onClose func()
}

// OnOpen implements loop.Receiver.
func (c *http2Conn) OnOpen(conn loop.Conn) {
	c.conn = conn
	c.flush()
}

// OnData implements loop.Receiver.
func (c *http2Conn) OnData(b []byte) {
	err := c.Feed(b)
	c.flush()
	if err != nil {
		c.onWrong(err)
		c.conn.Close()
	}
}

// OnClose implements loop.Receiver.
func (c *http2Conn) OnClose(error) {
	c.conn = nil
	c.Close()
	c.onClose()
}

// flush writes what there is to write.
func (c *http2Conn) flush() {
	for c.conn != nil && c.Ready() {
		if b := c.Output(64 << 10); b != nil {
			c.conn.Write(b)
		}
	}
}

// ignored are the events, of either side of a connection, that its owner ignores.
type ignored struct{}

func (ignored) MayGrow(*http2.Stream, int) bool { return true }
func (ignored) OnNoRoom(*http2.Stream)          {}
func (ignored) OnOversize(*http2.Stream)        {}
func (ignored) OnInterim(*http2.Stream)         {}
func (ignored) OnWritable(*http2.Stream)        {}
func (ignored) OnSent(*http2.Stream)            {}
func (ignored) OnSettings()                     {}
func (ignored) OnBarrier()                      {}

// callerHTTP2 is an HTTP/2 connection of a caller, for as many requests at a time as the
// sidecar allows.
type callerHTTP2 struct {
	ignored
	net     http2Conn
	c       *caller
	life    int             // of the sidecar when it was dialled
	leaving bool            // no new request may begin: GOAWAY
	calls   []*callerStream // those that have not ended, in the order of their requests
}

// callerStream is one request of a caller.
type callerStream struct {
	on    *callerHTTP2  // nil once it has ended, or before it is sent again
	st    *http2.Stream // on that connection
	over  bool
	nonce int
	tries int
	leave loop.Timer
	res   protocol.Response
	text  bytebufferpool.ByteBuffer
	body  []byte
}

var callerOptions = http2.Options{Limits: limits}

const (
	callerStreams = 90 // requests that wait for a connection; a sidecar allows more
	callerTries   = 5  // connections that may go away before they take a request
)

// sendHTTP2 sends a request, which the caller abandons after some time unless that is 0.
func (c *caller) sendHTTP2(nonce int, abandonAfter time.Duration) {
	k := &callerStream{nonce: nonce}
	k.leave.Fire = func() { c.giveUp(k) }
	if abandonAfter > 0 {
		c.loop.After(abandonAfter, &k.leave)
	}
	c.place(k)
}

// place gives a request to a connection.
func (c *caller) place(k *callerStream) {
	if k.over {
		return
	}
	of := &c.http2[k.nonce%len(c.http2)]
	for _, on := range *of {
		if on.takes() {
			on.add(k)
			return
		}
	}
	on := &callerHTTP2{c: c, life: c.m.consumers[c.consumer].lives}
	on.net.onWrong = func(why error) { c.m.journal.wrong("consumer %d: malformed HTTP/2: %v", c.consumer+1, why) }
	on.net.onClose = func() {
		*of = slices.DeleteFunc(*of, func(other *callerHTTP2) bool { return other == on })
		for len(on.calls) > 0 {
			on.fail(on.calls[0])
		}
	}
	on.net.InitClient(&callerOptions, on)
	*of = append(*of, on)
	c.dial(k.nonce, &on.net)
	on.add(k)
}

// takes reports whether on takes another request. One that was dialled before the sidecar started again
// may be refused by then, which says nothing about the sidecar that runs now.
func (on *callerHTTP2) takes() bool {
	if on.net.conn == nil {
		return len(on.calls) < callerStreams && on.life == on.c.m.consumers[on.c.consumer].lives
	}
	return !on.leaving && on.net.MayOpen() > 0
}

// add sends a request at once: the codec keeps its bytes until the connection is open.
func (on *callerHTTP2) add(k *callerStream) {
	call := &on.c.m.journal.calls[k.nonce]
	field := func(name, value string) protocol.Header {
		return protocol.Header{Name: []byte(name), Value: []byte(value)}
	}
	method, path := on.c.m.journal.target(k.nonce)
	req := protocol.Request{Method: []byte(method), Path: []byte(path), Authority: []byte("compute"), Body: body[:call.size],
		Headers: []protocol.Header{field("x-nonce", strconv.Itoa(k.nonce))}}
	if !call.unsafe {
		req.Headers = append(req.Headers, field("x-remora-idempotent", "1"))
	}
	if call.batch {
		req.Headers = append(req.Headers, field("x-remora-priority", "batch"))
	}
	k.on, k.st = on, on.net.Request(&req, "http", nil)
	k.st.Owner = k
	on.calls = append(on.calls, k)
	on.net.flush()
}

// remove takes a request off its connection.
func (on *callerHTTP2) remove(k *callerStream) {
	on.calls = slices.DeleteFunc(on.calls, func(other *callerStream) bool { return other == k })
	k.on, k.st = nil, nil
}

// fail records that a request got no response.
func (on *callerHTTP2) fail(k *callerStream) {
	on.remove(k)
	k.over = true
	on.c.loop.Stop(&k.leave)
	on.c.m.journal.ended(k.nonce, closed, 0)
}

func (c *caller) giveUp(k *callerStream) {
	if on, st := k.on, k.st; on != nil {
		on.remove(k)
		on.net.Reset(st, http2.Cancel)
		on.net.flush()
	}
	k.over = true
	c.m.journal.ended(k.nonce, abandoned, 0)
}

func (on *callerHTTP2) OnGoAway(uint32, http2.Code) { on.leaving = true }

// OnReset sends a request again that the sidecar has not taken.
func (on *callerHTTP2) OnReset(st *http2.Stream, code http2.Code, why *http2.Error) {
	k := st.Owner.(*callerStream)
	if why != nil && why != http2.ErrUnprocessed {
		on.net.onWrong(why)
	}
	if k.on == nil {
		return // its response came before its body had left
	}
	if code == http2.RefusedStream && k.tries < callerTries {
		k.tries++
		on.remove(k)
		on.c.loop.Post(func() { on.c.place(k) })
		return
	}
	on.fail(k)
}

func (on *callerHTTP2) NewResponse(st *http2.Stream) (*protocol.Response, *bytebufferpool.ByteBuffer) {
	k := st.Owner.(*callerStream)
	k.text.B = k.text.B[:0]
	return &k.res, &k.text
}

func (on *callerHTTP2) OnResponse(st *http2.Stream, end bool) {
	if end {
		on.answered(st)
	}
}

func (on *callerHTTP2) OnData(st *http2.Stream, b []byte, end bool) {
	k := st.Owner.(*callerStream)
	k.body = append(k.body, b...)
	on.net.Consumed(st, len(b))
	if end {
		on.answered(st)
	}
}

func (on *callerHTTP2) OnTrailers(st *http2.Stream, _ []protocol.Header) { on.answered(st) }

func (on *callerHTTP2) answered(st *http2.Stream) {
	k := st.Owner.(*callerStream)
	on.remove(k)
	k.over = true
	on.c.loop.Stop(&k.leave)
	on.c.answered(k.nonce, &k.res, k.body)
}

// appHTTP2 is an HTTP/2 connection to an application. The application stops its work on
// requests that are reset.
type appHTTP2 struct {
	ignored
	net   http2Conn
	app   *app
	calls []*appStream // in the order of their requests
}

// appStream is one request on an appHTTP2.
type appStream struct {
	c      *appHTTP2
	st     *http2.Stream // nil once it is over
	req    protocol.Request
	text   bytebufferpool.ByteBuffer
	length int64 // of the body so far
}

var appOptions = http2.Options{Limits: limits}

func newAppHTTP2(a *app) loop.Receiver {
	c := &appHTTP2{app: a}
	c.net.onWrong = func(why error) {
		a.m.journal.wrong("provider %d: its application got malformed HTTP/2: %v", a.provider+1, why)
	}
	c.net.onClose = func() {
		for len(c.calls) > 0 {
			c.over(c.calls[0])
		}
	}
	c.net.InitServer(&appOptions, c)
	return &c.net
}

// over ends a call: there is nobody to respond to.
func (c *appHTTP2) over(k *appStream) {
	k.st = nil
	c.calls = slices.DeleteFunc(c.calls, func(other *appStream) bool { return other == k })
	c.app.cancel(k)
}

func (c *appHTTP2) NewRequest(st *http2.Stream) (*protocol.Request, *bytebufferpool.ByteBuffer) {
	k := &appStream{c: c, st: st}
	st.Owner = k
	c.calls = append(c.calls, k)
	return &k.req, &k.text
}

func (c *appHTTP2) OnRequest(st *http2.Stream, end bool) {
	if end {
		c.take(st)
	}
}

func (c *appHTTP2) OnData(st *http2.Stream, b []byte, end bool) {
	st.Owner.(*appStream).length += int64(len(b))
	c.net.Consumed(st, len(b))
	if end {
		c.take(st)
	}
}

func (c *appHTTP2) OnTrailers(st *http2.Stream, _ []protocol.Header) { c.take(st) }

func (c *appHTTP2) OnReset(st *http2.Stream, _ http2.Code, why *http2.Error) {
	k := st.Owner.(*appStream)
	if why != nil {
		c.net.onWrong(why)
	}
	c.over(k)
}

func (c *appHTTP2) take(st *http2.Stream) {
	k := st.Owner.(*appStream)
	c.app.take(k, &k.req, k.length)
}

// answer responds to the request nonce, unless it was reset.
func (k *appStream) answer(nonce, status int) {
	if k.st == nil {
		return
	}
	id := []byte(strconv.Itoa(nonce))
	st := k.st
	k.st = nil
	k.c.calls = slices.DeleteFunc(k.c.calls, func(other *appStream) bool { return other == k })
	k.c.net.Respond(st, &protocol.Response{Status: status, DeclaredLength: -1, Body: id,
		Headers: []protocol.Header{{Name: []byte("x-nonce"), Value: id}}}, nil)
	k.c.net.flush()
}
