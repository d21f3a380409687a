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
	"github.com/remora-proxy/remora/proxy/mux"
	"github.com/remora-proxy/remora/proxy/mux/linkconn"
	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/proxy/shard"
)

// end is an accepting end of a link on its own.
type end struct {
	linkconn.Conn
	t        *testing.T
	loop     *proxytest.NullLoop
	conn     *proxytest.NullConn
	seen     int // writes before the last call of written
	peer     *link.Writer
	req      protocol.Request
	inFlight int
	stops    bool // with a PING
	stays    bool // when it is idle

	before, flushed, lost, idle int // calls
}

// unattached returns an end without a connection. set changes its configuration.
func unattached(t *testing.T, set ...func(*config.Config)) *end {
	cfg := config.Default()
	cfg.Timeouts.Body, cfg.Timeouts.Write, cfg.Timeouts.Drain = 4*time.Second, 5*time.Second, 20*time.Second
	for _, f := range set {
		f(cfg)
	}
	net := proxytest.NewNullNet()
	e := &end{t: t, loop: net.Loop(), peer: link.NewWriter()}
	e.conn, _ = net.Connect(e.loop, nil, nil, nil)
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
func newEnd(t *testing.T, set ...func(*config.Config)) *end {
	e := unattached(t, set...)
	e.Attach(e.conn)
	e.peer.Preface(link.Dialer, link.Settings{})
	e.peer.Open(1, link.Settings{})
	e.says(func(*link.Writer) {})
	e.loop.EndTurn()
	if e.State() != linkconn.Open || len(e.written()) == 0 {
		t.Fatal("the link is not open")
	}
	e.before, e.flushed, e.Shard.Stats.LinkFlushes = 0, 0, 0
	return e
}

// writes returns the number of writes since the last call of written.
func (e *end) writes() int { return e.conn.Writes - e.seen }

// written returns all that was written, and forgets it.
func (e *end) written() (b []byte) {
	b, e.conn.Out, e.seen = e.conn.Out, nil, e.conn.Writes
	return b
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
	e.loop.EndTurn()
	proxytest.Equal(t, "writes for a byte", e.writes(), 0)
	e.says(func(w *link.Writer) { w.Ping(77) })
	e.loop.EndTurn()
	if got := e.written(); !bytes.Equal(got, []byte{4, 0, 1, 1, 9, 77, 0}) {
		t.Errorf("%x was written, want CREDIT and PONG", got)
	}
}

// TestEndWithinInput: input that ends the link itself is not malformed.
func TestEndWithinInput(t *testing.T) {
	e := newEnd(t)
	e.stops = true
	e.says(func(w *link.Writer) { w.Ping(77) })
	e.loop.RunTo(time.Hour)
	proxytest.Equal(t, "losses", e.lost, 0)
	proxytest.Equal(t, "bytes held", e.held(), 0)
}

// TestPong: a PING has its response at the end of the turn, and nothing else. The write counts, and is no batch of messages.
func TestPong(t *testing.T) {
	e := newEnd(t)
	in, out := e.Shard.Stats.LinkBytesIn, e.Shard.Stats.LinkBytesOut
	e.says(func(w *link.Writer) { w.Ping(77) })
	proxytest.Equal(t, "writes within the turn", e.writes(), 0)
	e.loop.EndTurn()
	if got := e.written(); !bytes.Equal(got, []byte{9, 77, 0}) {
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
				proxytest.Equal(t, "writes of earlier messages", e.writes(), 0)
				e.respond(uint64(i+1), size)
				e.Schedule(c.alone)
			}
			if now := e.writes() == 1; now != c.now || e.flushed > 0 {
				t.Errorf("written at once: %t, at the end of a turn: %d", now, e.flushed)
			}
			e.loop.EndTurn()
			proxytest.Equal(t, "writes", e.writes(), 1)
			proxytest.Equal(t, "messages in them", e.Shard.Stats.LinkBatches.Sum, uint64(len(c.sizes)))
			proxytest.Equal(t, "bytes held", e.held(), e.Account.Tables())
		})
	}
}

// TestFramesAwaitRoom: frames are written until more than mux.MaxOutbound bytes wait for the peer to read. Then they count as held until
// there is room.
func TestFramesAwaitRoom(t *testing.T) {
	for buffered, writes := range map[int]int{mux.MaxOutbound: 1, mux.MaxOutbound + 1: 0} {
		e := newEnd(t)
		e.conn.Held = buffered
		proxytest.Equal(t, "output waits", e.Waits(), true)
		e.respond(1, 10_000)
		e.FlushLater()
		proxytest.Equal(t, "writes within the turn", e.writes(), 0)
		e.loop.EndTurn()
		proxytest.Equal(t, "writes", e.writes(), writes)
		if writes == 1 {
			continue
		}
		if n := e.Account.Messages(); n < 10_000 || n != e.Writer.Encoded() {
			t.Errorf("%d bytes count, %d wait", n, e.Writer.Encoded())
		}
		proxytest.Equal(t, "room that is awaited", e.conn.Left, mux.MaxOutbound)
		e.conn.Held = 0
		e.conn.Room.Do()
		proxytest.Equal(t, "writes into the room", e.writes(), 1)
		proxytest.Equal(t, "bytes that count", e.Account.Messages(), 0)
		proxytest.Equal(t, "flushes", e.flushed, 2)
		proxytest.Equal(t, "output waits", e.Waits(), false)
		e.conn.Held = 1
		proxytest.Equal(t, "a byte waits", e.Waits(), true)
	}
}

// TestControlBound: a peer may let 1 MiB of control frames wait, and no byte more.
func TestControlBound(t *testing.T) {
	const most, refusal = 1 << 20, 4 // bytes
	e := newEnd(t)
	e.conn.Held = mux.MaxOutbound + 1
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
	e.conn.Held = mux.MaxOutbound + 1
	e.respond(1, 10_000)
	b := e.request(4)
	if !e.Receive(b[:len(b)/2]) {
		t.Fatal("the link must close")
	}
	e.loop.EndTurn()
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
	e.conn.Held = 1000
	e.Flush()
	e.LimitDrain()
	e.StartDraining()
	if e.held() == 0 {
		t.Error("nothing is held")
	}
	e.Stop()
	proxytest.Equal(t, "bytes held", e.held(), 0)
	e.written()
	e.loop.RunTo(time.Hour)
	proxytest.Equal(t, "timers", e.loop.Timers(), 0)
	proxytest.Equal(t, "calls after the end", [2]int{e.lost, e.idle}, [2]int{})
	proxytest.Equal(t, "writes after the end", e.writes(), 0)
}

// TestSlowFrame: a link closes as soon as a frame is incomplete for timeouts.body.
func TestSlowFrame(t *testing.T) {
	e := newEnd(t)
	b := e.request(1)
	if !e.Receive(b[:len(b)/2]) {
		t.Fatal("the link must close")
	}
	e.loop.RunTo(4 * time.Second)
	proxytest.Equal(t, "losses before the time", e.lost, 0)
	e.loop.RunTo(4*time.Second + 10)
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
	e.loop.RunTo(time.Second / 2)
	if !e.Receive(append(first[len(wholeFrames(first, len(first)-1)):], second[:begun]...)) {
		t.Fatal("the link must close")
	}
	e.loop.EndTurn()
	e.written()
	if e.Account.Messages() < 10_000 {
		t.Fatalf("%d bytes are held of an incomplete message", e.Account.Messages())
	}
	e.loop.RunTo(5 * time.Second)
	proxytest.Equal(t, "writes before the time", e.writes(), 0)
	e.loop.RunTo(5*time.Second + 10)
	if got := e.written(); !bytes.HasPrefix(got, []byte{7, 2, 1, byte(link.DeadlinePassed)}) {
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
		e.loop.RunTo(time.Duration(second) * time.Second)
		e.respond(uint64(second+1), 10)
		e.Flush()
	}
	proxytest.Equal(t, "losses before the time", e.lost, 0)
	e.loop.RunTo(5*time.Second + 10)
	proxytest.Equal(t, "losses", e.lost, 1)
	proxytest.Equal(t, "write timeouts", e.Shard.Stats.WriteTimeouts, uint64(1))
}

// TestKeepaliveOfPart: a peer gets a PING when it is silent while a single byte of its frame has arrived, or a response waits for its
// credit. It loses its link if it does not respond. With neither the link is idle.
func TestKeepaliveOfPart(t *testing.T) {
	patient := func(c *config.Config) { c.Timeouts.Body, c.Timeouts.Write = time.Hour, time.Hour }
	for _, c := range []struct {
		name  string
		begin func(e *end)
		busy  bool
	}{
		{"nothing", func(*end) {}, false},
		{"a byte of a frame", func(e *end) {
			if !e.Receive([]byte{1}) || e.Reader.Buffered() != 1 {
				e.t.Fatalf("%d bytes are buffered", e.Reader.Buffered())
			}
		}, true},
		{"a response without credit", func(e *end) {
			e.respond(1, 1<<20)
			e.Flush()
		}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := newEnd(t, patient)
			c.begin(e)
			e.written()
			e.loop.RunTo(21 * time.Second)
			if got := bytes.Equal(e.written(), []byte{8, 1, 0}); got != c.busy {
				t.Errorf("a PING: %t", got)
			}
			e.loop.RunTo(69 * time.Second)
			proxytest.Equal(t, "idle for less than 70 s", e.idle, 0)
			e.loop.RunTo(91 * time.Second)
			if want := map[bool][2]int{true: {1, 0}, false: {0, 1}}[c.busy]; [2]int{e.lost, e.idle} != want {
				t.Errorf("lost %d times, idle %d times", e.lost, e.idle)
			}
			proxytest.Equal(t, "timers of a link that has closed", e.loop.Timers(), 0)
		})
	}
}

// TestIdleLinkThatStays: a link whose end does not close it when it is idle is idle again with each keepalive.
func TestIdleLinkThatStays(t *testing.T) {
	e := newEnd(t)
	e.stays = true
	e.loop.RunTo(91 * time.Second)
	proxytest.Equal(t, "idle", e.idle, 3)
	e.inFlight = 1
	e.loop.RunTo(101 * time.Second) // sends a PING
	e.says(func(w *link.Writer) { w.Pong(1) })
	e.inFlight = 0
	e.loop.RunTo(169 * time.Second)
	proxytest.Equal(t, "idle for 60 s after a request", e.idle, 3)
	e.loop.RunTo(171 * time.Second)
	proxytest.Equal(t, "idle for more", [2]int{e.idle, e.lost}, [2]int{4, 0})
}
