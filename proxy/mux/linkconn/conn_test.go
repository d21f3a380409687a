package linkconn_test

import (
	"bytes"
	"log/slog"
	"testing"
	"time"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/mux"
	"github.com/remora-proxy/remora/proxy/mux/linkconn"
	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/proxy/shard"
)

// turns is a loop whose timers fire on time. A turn ends with each timer, and with endTurn.
type turns struct {
	loop.Loop // nil: the rest is not called
	now       time.Duration
	timers    loop.Timers
	flushes   loop.Flushes
}

func (l *turns) Now() time.Duration                   { return l.now }
func (l *turns) After(d time.Duration, t *loop.Timer) { l.timers.Arm(t, l.now+d) }
func (l *turns) Stop(t *loop.Timer)                   { l.timers.Disarm(t) }
func (l *turns) Defer(f *loop.Flush)                  { l.flushes.Add(f) }

func (l *turns) endTurn() {
	for _, f := range l.flushes.Take() {
		f.Do()
	}
}

// runTo fires the timers that are due until at.
func (l *turns) runTo(at time.Duration) {
	for due, ok := l.timers.Next(); ok && due <= at; due, ok = l.timers.Next() {
		l.now = due
		l.timers.Pop(due, l.timers.LastSeq()).Fire()
		l.endTurn()
	}
	l.now = at
}

// wire is a connection that keeps what is written. A test says how much of that is Buffered.
type wire struct {
	loop.Conn // nil: the rest is not called
	writes    [][]byte
	buffered  int
	left      int         // of AwaitRoom
	room      *loop.Flush // of AwaitRoom
}

func (c *wire) Buffered() int                     { return c.buffered }
func (c *wire) RemoteAddr() string                { return "192.0.2.1:1" }
func (c *wire) AwaitRoom(left int, f *loop.Flush) { c.left, c.room = left, f }
func (c *wire) Write(b []byte)                    { c.writes = append(c.writes, bytes.Clone(b)) }
func (c *wire) WriteParts(parts [][]byte)         { c.writes = append(c.writes, bytes.Join(parts, nil)) }

// written returns all that was written, and forgets it.
func (c *wire) written() (b []byte) {
	b = bytes.Join(c.writes, nil)
	c.writes = nil
	return b
}

// end is an accepting end of a link on its own.
type end struct {
	linkconn.Conn
	t        *testing.T
	loop     *turns
	wire     *wire
	peer     *link.Writer
	req      protocol.Request
	inFlight int
	stops    bool // with a PING
	stays    bool // when it is idle

	before, flushed, lost, idle int // calls
}

// unattached returns an end without a connection.
func unattached(t *testing.T) *end {
	cfg := config.Default()
	cfg.Timeouts.Body, cfg.Timeouts.Write, cfg.Timeouts.Drain = 4*time.Second, 5*time.Second, 20*time.Second
	e := &end{t: t, loop: &turns{now: 1}, wire: &wire{}, peer: link.NewWriter()}
	process := &shard.Process{Loops: 1}
	process.Budget.Configure(&cfg.Limits)
	s := shard.New(process, 0, e.loop, slog.New(slog.DiscardHandler), 1)
	s.Configure(cfg)
	own := linkconn.Settings(process)
	r := link.NewAcceptor(own, linkconn.Limits(s, func(uint64) bool { return false }), acceptor{end: e})
	e.Init(s, r, e)
	e.Writer.Preface(link.Acceptor, own)
	return e
}

// newEnd returns an end that has got the preface of its peer, and has written its own.
func newEnd(t *testing.T) *end {
	e := unattached(t)
	e.Attach(e.wire)
	e.peer.Preface(link.Dialer, link.Settings{})
	e.peer.Open(1, link.Settings{})
	e.says(func(*link.Writer) {})
	e.loop.endTurn()
	if e.State() != linkconn.Open || len(e.wire.written()) == 0 {
		t.Fatal("the link is not open")
	}
	proxytest.Equal(t, "timers, of the keepalive", e.loop.timers.Len(), 1)
	e.before, e.flushed, e.Shard.Stats.LinkFlushes = 0, 0, 0
	return e
}

// says receives the frames that say writes.
func (e *end) says(say func(w *link.Writer)) {
	e.t.Helper()
	say(e.peer)
	if !e.Receive(e.peer.Append(nil, 1<<20)) {
		e.t.Fatal("the link must close")
	}
}

// request is a request whose body needs two frames of DATA.
func (e *end) request(id uint64) []byte {
	req := *proxytest.LinkRequest
	req.Body = make([]byte, 20_000)
	e.peer.Request(id, &req, time.Hour, nil)
	return e.peer.Append(nil, 1<<20)
}

// held is what the link counts in limits.buffered.
func (e *end) held() int { return int(e.Shard.Process.Budget.Held() + e.Shard.Uncounted) }

// InFlight and the four after it implement linkconn.Handler.
func (e *end) InFlight() int { return e.inFlight }
func (e *end) BeforeFlush()  { e.before++ }
func (e *end) OnFlushed()    { e.flushed++ }
func (e *end) OnIdle() {
	if e.idle++; !e.stays {
		e.Stop()
	}
}
func (e *end) OnLost() {
	e.lost++
	e.Stop()
}

// acceptor is the link.RequestHandler of an end.
type acceptor struct {
	link.RequestHandler // nil: the rest is not called
	*end
}

func (a acceptor) OnPreface(version uint8, peer link.Settings) { a.Establish(version, peer) }
func (a acceptor) OnReject(id uint64, why link.Reason)         { a.Writer.Refused(id, why) }
func (a acceptor) OnPong(n uint64)                             { a.Conn.OnPong(n) }
func (a acceptor) OnCredit(n uint32)                           { a.Conn.OnCredit(n) }
func (a acceptor) NewRequest(uint64) *protocol.Request         { return &a.req }
func (a acceptor) OnRequest(_ uint64, _ *protocol.Request, _ time.Duration, b *bytebufferpool.ByteBuffer) {
	a.Shard.Buffers.Put(b)
}

func (a acceptor) OnPing(n uint64) {
	if a.stops {
		a.Stop()
	}
	a.Conn.OnPing(n)
}

// respond gives the writer a response with a body of n bytes.
func (e *end) respond(id uint64, n int) {
	e.Writer.Response(id, &protocol.Response{Status: 200, DeclaredLength: -1, Body: make([]byte, n)}, protocol.CodecHTTP, nil)
}

// TestSettings: a sidecar announces the largest frames and window, and what it can do.
func TestSettings(t *testing.T) {
	want := link.Settings{MaxFrame: 64 << 10, MaxStreams: 4096, Window: 256 << 10, Features: link.FeatureProbes | link.FeatureCloses}
	proxytest.Equal(t, "settings without streams", linkconn.Settings(&shard.Process{}), want)
	want.Features |= link.FeatureStreams
	proxytest.Equal(t, "settings with streams", linkconn.Settings(&shard.Process{Streams: true}), want)
}

// TestLimits: a message may have what limits allow, and what the other sidecar adds.
func TestLimits(t *testing.T) {
	s := unattached(t).Shard
	got := linkconn.Limits(s, nil)
	proxytest.Equal(t, "bytes of a message", got.Message, s.MessageLimits.Message)
	proxytest.Equal(t, "bytes of a head", got.Header, s.MessageLimits.Header+384)
	proxytest.Equal(t, "headers", got.Headers, s.MessageLimits.Headers+6)
}

// TestMemoryBeforeConnection: what is to be sent counts before there is a connection, too.
func TestMemoryBeforeConnection(t *testing.T) {
	e := unattached(t)
	e.respond(1, 1000)
	e.Flush()
	if n := e.Account.Messages(); n < 1000 || n != e.Writer.Encoded() {
		t.Errorf("%d bytes count, %d wait", n, e.Writer.Encoded())
	}
}

// TestCreditOfByte: a peer gets back the credit for a single byte of DATA, with the next frame.
func TestCreditOfByte(t *testing.T) {
	e := newEnd(t)
	first := e.request(1)
	begun := len(wholeFrames(first, 1000)) // the head
	if begun == 0 || !e.Receive(proxytest.AppendData(first[:begun:begun], 1, 1)) {
		t.Fatal("the link must close")
	}
	e.loop.endTurn()
	proxytest.Equal(t, "writes for a byte", len(e.wire.writes), 0)
	e.says(func(w *link.Writer) { w.Ping(77) })
	e.loop.endTurn()
	if got := e.wire.written(); !bytes.Equal(got, []byte{4, 0, 1, 1, 9, 77, 0}) {
		t.Errorf("%x was written, want CREDIT and PONG", got)
	}
}

// TestEndWithinInput: input that ends the link itself is not malformed.
func TestEndWithinInput(t *testing.T) {
	e := newEnd(t)
	e.stops = true
	e.says(func(w *link.Writer) { w.Ping(77) })
	e.loop.runTo(time.Hour)
	proxytest.Equal(t, "losses", e.lost, 0)
	proxytest.Equal(t, "bytes held", e.held(), 0)
}

// TestPong: a PING has its response at the end of the turn, and nothing else. The write counts, and is no batch of messages.
func TestPong(t *testing.T) {
	e := newEnd(t)
	in, out := e.Shard.Stats.LinkBytesIn, e.Shard.Stats.LinkBytesOut
	e.says(func(w *link.Writer) { w.Ping(77) })
	proxytest.Equal(t, "writes within the turn", len(e.wire.writes), 0)
	e.loop.endTurn()
	if got := e.wire.written(); !bytes.Equal(got, []byte{9, 77, 0}) {
		t.Errorf("%x was written", got)
	}
	s := &e.Shard.Stats
	proxytest.Equal(t, "bytes in", s.LinkBytesIn-in, uint64(3))
	proxytest.Equal(t, "bytes out", s.LinkBytesOut-out, uint64(3))
	proxytest.Equal(t, "writes", s.LinkFlushes, uint64(1))
	proxytest.Equal(t, "batches", s.LinkBatches.Counts[0]+s.LinkBatches.Sum, uint64(0))
	proxytest.Equal(t, "flushes", [2]int{e.before, e.flushed}, [2]int{1, 1})
}

// TestSchedule: a message leaves at once if it is alone, or much waits; else with the others of the turn.
func TestSchedule(t *testing.T) {
	for _, c := range []struct {
		name  string
		sizes []int
		alone bool
		now   bool // the last message leaves at once, with the others
	}{
		{"alone", []int{10}, true, true},
		{"not alone", []int{10, 10}, false, false},
		{"less than half a batch", []int{10_000, 10_000, 10_000}, false, false},
		{"more than half a batch", []int{10_000, 10_000, 13_000}, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := newEnd(t)
			for i, size := range c.sizes {
				proxytest.Equal(t, "writes of earlier messages", len(e.wire.writes), 0)
				e.respond(uint64(i+1), size)
				e.Schedule(c.alone)
			}
			if now := len(e.wire.writes) == 1; now != c.now || e.flushed > 0 {
				t.Errorf("written at once: %t, at the end of a turn: %d", now, e.flushed)
			}
			e.loop.endTurn()
			proxytest.Equal(t, "writes", len(e.wire.writes), 1)
			proxytest.Equal(t, "messages in them", e.Shard.Stats.LinkBatches.Sum, uint64(len(c.sizes)))
			proxytest.Equal(t, "bytes held", e.held(), e.Account.Tables())
		})
	}
}

// TestOutputBound: frames are written until more than mux.MaxOutbound bytes wait for the peer to read. Then they count as held until
// there is room.
func TestOutputBound(t *testing.T) {
	for buffered, writes := range map[int]int{mux.MaxOutbound: 1, mux.MaxOutbound + 1: 0} {
		e := newEnd(t)
		e.wire.buffered = buffered
		proxytest.Equal(t, "output waits", e.Waits(), true)
		e.respond(1, 10_000)
		e.FlushLater()
		proxytest.Equal(t, "writes within the turn", len(e.wire.writes), 0)
		e.loop.endTurn()
		proxytest.Equal(t, "writes", len(e.wire.writes), writes)
		if writes == 1 {
			continue
		}
		if n := e.Account.Messages(); n < 10_000 || n != e.Writer.Encoded() {
			t.Errorf("%d bytes count, %d wait", n, e.Writer.Encoded())
		}
		proxytest.Equal(t, "room that is awaited", e.wire.left, mux.MaxOutbound)
		e.wire.buffered = 0
		e.wire.room.Do()
		proxytest.Equal(t, "writes into the room", len(e.wire.writes), 1)
		proxytest.Equal(t, "bytes that count", e.Account.Messages(), 0)
		proxytest.Equal(t, "flushes", e.flushed, 2)
		proxytest.Equal(t, "output waits", e.Waits(), false)
		e.wire.buffered = 1
		proxytest.Equal(t, "a byte waits", e.Waits(), true)
	}
}

// TestControlBound: a peer may let 1 MiB of control frames wait, and no byte more.
func TestControlBound(t *testing.T) {
	const most, refusal = 1 << 20, 4 // bytes
	e := newEnd(t)
	e.wire.buffered = mux.MaxOutbound + 1
	for range most / refusal {
		e.Writer.Refused(1, link.Overload)
	}
	proxytest.Equal(t, "bytes that wait", e.Writer.Control(), most)
	e.says(func(w *link.Writer) { w.Ping(1) })
	e.Writer.Refused(1, link.Overload)
	e.peer.Ping(2)
	if e.Receive(e.peer.Append(nil, 1<<20)) {
		t.Error("the link stays open")
	}
}

// TestMemory: what has arrived in part counts, what waits to be sent, and the tables of both.
func TestMemory(t *testing.T) {
	e := newEnd(t)
	e.says(func(w *link.Writer) {
		for id := range uint64(3) { // the texts are in the table then
			w.Request(id+1, proxytest.LinkRequest, time.Hour, nil)
		}
	})
	e.wire.buffered = mux.MaxOutbound + 1
	e.respond(1, 10_000)
	b := e.request(4)
	if !e.Receive(b[:len(b)/2]) {
		t.Fatal("the link must close")
	}
	e.loop.endTurn()
	for what, n := range map[string]int{
		"the reader's messages": e.Reader.Buffered(), "the writer's messages": e.Writer.Encoded(),
		"the reader's table": e.Reader.Interned(), "the writer's table": e.Writer.Interned(),
	} {
		if n == 0 {
			t.Errorf("%s take no memory", what)
		}
	}
	proxytest.Equal(t, "messages", e.Account.Messages(), e.Reader.Buffered()+e.Writer.Encoded())
	proxytest.Equal(t, "tables", e.Account.Tables(), e.Reader.Interned()+e.Writer.Interned())
	proxytest.Equal(t, "bytes held", e.held(), e.Account.Messages()+e.Account.Tables()+e.Outbound.Counted())
}

// TestStop: a link that has ended holds nothing, and no timer.
func TestStop(t *testing.T) {
	e := newEnd(t)
	b := e.request(1)
	if !e.Receive(b[:len(b)/2]) { // arms the timer of what is incomplete
		t.Fatal("the link must close")
	}
	e.respond(1, 1<<20) // uses up the credit
	e.wire.buffered = 1000
	e.Flush()
	e.LimitDrain()
	e.StartDraining()
	if n := e.loop.timers.Len(); n != 5 { // and those of the keepalive and of the backlog
		t.Errorf("%d timers", n)
	}
	if e.held() == 0 {
		t.Error("nothing is held")
	}
	e.Stop()
	proxytest.Equal(t, "bytes held", e.held(), 0)
	proxytest.Equal(t, "timers, of all backlogs and of unused buffers", e.loop.timers.Len(), 2)
	e.loop.runTo(time.Hour)
	proxytest.Equal(t, "timers", e.loop.timers.Len(), 0)
	proxytest.Equal(t, "calls after the end", [2]int{e.lost, e.idle}, [2]int{})
}

// TestSlowFrame: a link closes as soon as a frame is incomplete for timeouts.body.
func TestSlowFrame(t *testing.T) {
	e := newEnd(t)
	b := e.request(1)
	if !e.Receive(b[:len(b)/2]) {
		t.Fatal("the link must close")
	}
	e.loop.runTo(4 * time.Second)
	proxytest.Equal(t, "losses before the time", e.lost, 0)
	e.loop.runTo(4*time.Second + 10)
	proxytest.Equal(t, "losses", e.lost, 1)
}

// TestSlowMessage: what is incomplete is looked at four times in timeouts.body. So a message that has begun between two of these times
// has a bit longer. Its refusal leaves at once, and its memory is free.
func TestSlowMessage(t *testing.T) {
	e := newEnd(t)
	first, second := e.request(1), e.request(2)
	begun := len(wholeFrames(second, len(second)-1))
	if !e.Receive(first[:len(wholeFrames(first, len(first)-1))]) {
		t.Fatal("the link must close")
	}
	e.loop.runTo(time.Second / 2)
	if !e.Receive(append(first[len(wholeFrames(first, len(first)-1)):], second[:begun]...)) {
		t.Fatal("the link must close")
	}
	e.loop.endTurn()
	e.wire.written()
	if e.Account.Messages() < 10_000 {
		t.Fatalf("%d bytes are held of an incomplete message", e.Account.Messages())
	}
	e.loop.runTo(5 * time.Second)
	proxytest.Equal(t, "writes before the time", len(e.wire.writes), 0)
	e.loop.runTo(5*time.Second + 10)
	if got := e.wire.written(); !bytes.HasPrefix(got, []byte{7, 2, 1, byte(link.DeadlinePassed)}) {
		t.Errorf("%x was written, no refusal", got)
	}
	proxytest.Equal(t, "bytes held", e.Account.Messages(), 0)
	proxytest.Equal(t, "losses", e.lost, 0)
}

// TestCreditTimeout: more output that waits gives a peer no more time to grant credit.
func TestCreditTimeout(t *testing.T) {
	e := newEnd(t)
	e.respond(1, 1<<20)
	e.Flush()
	for second := 1; second < 5; second++ {
		e.loop.runTo(time.Duration(second) * time.Second)
		e.respond(uint64(second+1), 10)
		e.Flush()
	}
	proxytest.Equal(t, "losses before the time", e.lost, 0)
	e.loop.runTo(5*time.Second + 10)
	proxytest.Equal(t, "losses", e.lost, 1)
	proxytest.Equal(t, "write timeouts", e.Shard.Stats.WriteTimeouts, uint64(1))
}

// TestKeepaliveOfPartialFrame: a peer that has sent a single byte of a frame gets a PING when it is silent, and loses its link if it
// does not respond. Without that byte the link is idle.
func TestKeepaliveOfPartialFrame(t *testing.T) {
	for _, partial := range []bool{false, true} {
		e := newEnd(t)
		e.Shard.Config.Timeouts.Body = time.Hour
		if partial && (!e.Receive([]byte{1}) || e.Reader.Buffered() != 1) {
			t.Fatalf("%d bytes are buffered", e.Reader.Buffered())
		}
		e.loop.runTo(21 * time.Second)
		if got := bytes.Equal(e.wire.written(), []byte{8, 1, 0}); got != partial {
			t.Errorf("partial %t: a PING: %t", partial, got)
		}
		e.loop.runTo(69 * time.Second)
		proxytest.Equal(t, "idle for less than 70 s", e.idle, 0)
		e.loop.runTo(91 * time.Second)
		if want := map[bool][2]int{true: {1, 0}, false: {0, 1}}[partial]; [2]int{e.lost, e.idle} != want {
			t.Errorf("partial %t: lost %d times, idle %d times", partial, e.lost, e.idle)
		}
		proxytest.Equal(t, "timers of a link that has closed", e.loop.timers.Len(), 0)
	}
}

// TestIdleLinkThatStays: a link whose end does not close it when it is idle is idle again with each keepalive.
func TestIdleLinkThatStays(t *testing.T) {
	e := newEnd(t)
	e.stays = true
	e.loop.runTo(91 * time.Second)
	proxytest.Equal(t, "idle", e.idle, 3)
	e.inFlight = 1
	e.loop.runTo(101 * time.Second) // sends a PING
	e.says(func(w *link.Writer) { w.Pong(1) })
	e.inFlight = 0
	e.loop.runTo(169 * time.Second)
	proxytest.Equal(t, "idle for 60 s after a request", e.idle, 3)
	e.loop.runTo(171 * time.Second)
	proxytest.Equal(t, "idle for more", [2]int{e.idle, e.lost}, [2]int{4, 0})
}
