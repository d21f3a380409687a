package link

import (
	"slices"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
)

// frameSeen is the header of a frame on the wire.
type frameSeen struct {
	typ    frameType
	id     uint64
	length int
}

// frames returns the headers of the frames in b, which must be complete.
func frames(t *testing.T, b []byte) (fs []frameSeen) {
	t.Helper()
	for len(b) > 0 {
		f, n, err := parseHeader(b, MaxFrame-headerRoom)
		if err != nil || n == 0 || n+f.length > MaxFrame {
			t.Fatalf("frame of %d+%d bytes: %v", n, f.length, err)
		}
		fs = append(fs, frameSeen{f.typ, f.id, f.length})
		b = b[n+f.length:]
	}
	return fs
}

func big(n int) *protocol.Request {
	return &protocol.Request{Method: []byte("POST"), Path: []byte("/"), Body: make([]byte, n)}
}

// A short message waits for at most one window of DATA, whatever else is being sent.
func TestScheduleShortMessages(t *testing.T) {
	d, a := newLink(t, Settings{Window: 64 << 10}, ReaderLimits{})
	for id := range uint64(10) {
		d.w.Request(id+1, big(4<<20), time.Second, nil)
	}
	next := uint64(11)
	for range 50 {
		var wire []byte
		for d.w.Ready() { // the peer reads nothing
			wire = d.w.Append(wire, 16<<10)
		}
		ahead := len(wire)
		d.w.Request(next, typical(1), time.Second, nil)
		wire = d.w.Append(wire, 16<<10)
		if ahead > 64<<10+10*(headerRoom+64) {
			t.Fatalf("%d bytes ahead of a short message", ahead)
		}
		feed(t, a, wire)
		if a.h.requests[next] == nil {
			t.Fatal("the short message did not arrive")
		}
		d.w.Granted(a.r.TakeConsumed())
		next++
	}
}

func TestScheduleWindow(t *testing.T) {
	d, _ := newLink(t, Settings{Window: 100 << 10}, ReaderLimits{})
	d.w.Request(1, big(1<<20), 0, nil)
	count := func() (n int) {
		for _, f := range frames(t, d.w.Append(nil, 1<<20)) {
			if f.typ == frameData {
				n += f.length
			}
		}
		return n
	}
	const frames = 6 * (maxWhole - headerRoom) // more leave less than a sixteenth of the window
	if n := count(); n != frames || d.w.Ready() {
		t.Errorf("sent %d bytes without credit, ready %t", n, d.w.Ready())
	}
	const left = 100<<10 - frames
	d.w.Granted(100<<10/16 - left)
	if n := count(); n != 0 || d.w.Ready() {
		t.Errorf("sent %d bytes for a sixteenth of the window, ready %t", n, d.w.Ready())
	}
	d.w.Granted(1)
	if n := count(); n != 100<<10/16+1 {
		t.Errorf("sent %d bytes for a credit above a sixteenth of the window", n)
	}
	d.w.Granted(1 << 31) // more than was used: limited to the window
	if n := count(); n != frames {
		t.Errorf("sent %d bytes for a credit over the window", n)
	}
}

func TestAppendBudget(t *testing.T) {
	d, a := newLink(t, Settings{Window: MaxWindow}, ReaderLimits{})
	d.w.Request(1, big(1<<20), 0, nil)
	for id := range uint64(300) {
		d.w.Request(id+2, typical(1), 0, nil)
	}
	for d.w.Ready() {
		b := d.w.Append(nil, 4000)
		if len(b) >= 4000+2*MaxFrame {
			t.Fatalf("%d bytes for a budget of 4000", len(b))
		}
		data := 0
		for _, f := range frames(t, b) {
			if f.typ == frameData {
				data++
			}
		}
		if data == 0 {
			t.Fatal("no DATA between short messages")
		}
		feed(t, a, b)
		d.w.Granted(a.r.TakeConsumed())
	}
	if len(a.h.requests) != 301 {
		t.Errorf("%d requests arrived", len(a.h.requests))
	}
}

func TestWriterBeforeOpen(t *testing.T) {
	d := newSide(Dialer, Settings{}, ReaderLimits{})
	var o owners
	d.w.Request(1, typical(1), 0, o.next())
	d.w.Request(2, big(10<<10), 0, o.next())
	d.w.Ping(1)
	if !d.w.Ready() {
		t.Error("not ready with a preface")
	}
	hello := d.w.Append(nil, 1<<20)
	if n, err := prefaceLen(hello); err != nil || n != len(hello) {
		t.Fatalf("%d bytes left, of which the preface is %d: %v", len(hello), n, err)
	}
	if d.w.Ready() || len(d.w.Append(nil, 1<<20)) != 0 {
		t.Error("more than the preface leaves before Open")
	}
	if d.w.Drop(2) || o.released != 2 {
		t.Error("a request that waits for Open counts as started")
	}
	a := newSide(Acceptor, Settings{}, ReaderLimits{})
	if a.w.Ready() {
		t.Error("an acceptor's preface leaves before the version is known")
	}
	feed(t, a, hello)
	feed(t, d, a.w.Append(nil, 0))
	exchange(t, d, a)
	if a.h.requests[1] == nil || len(a.h.requests) != 1 {
		t.Errorf("got %q", a.h.events)
	}
}

func TestDrop(t *testing.T) {
	d, a := newLink(t, Settings{}, ReaderLimits{})
	var o owners
	for id := range uint64(100) {
		d.w.Request(id+1, typical(1), 0, o.next())
	}
	d.w.Request(101, big(1<<20), 0, o.next())
	if d.w.Drop(101) || o.released != o.given {
		t.Error("a long message that did not start: started, or not released")
	}
	for id := uint64(1); id <= 100; id += 2 {
		if d.w.Cancel(id) {
			t.Errorf("request %d counts as started", id)
		}
	}
	queued := d.w.Queued()
	exchange(t, d, a)
	if len(a.h.requests) != 50 || a.h.requests[1] != nil || a.h.requests[2] == nil || len(a.h.events) != 50 {
		t.Errorf("%d requests arrived, %d events", len(a.h.requests), len(a.h.events))
	}
	if !d.w.Drop(2) || !d.w.Drop(4711) {
		t.Error("a sent request counts as not started")
	}
	if queued == 0 || d.w.Queued() != 0 {
		t.Errorf("%d bytes queued, then %d", queued, d.w.Queued())
	}
	d.w.Request(102, big(1<<20), 0, o.next())
	feed(t, a, d.w.Append(nil, 0))
	if a.r.Buffered() == 0 {
		t.Fatal("nothing of the long message arrived")
	}
	if !d.w.Drop(102) || o.released != o.given {
		t.Error("a long message that started: not started, or not released")
	}
	feed(t, a, d.w.Append(nil, 0))
	if a.r.Buffered() != 0 || a.h.requests[102] != nil {
		t.Error("the peer keeps its part of a dropped message")
	}
}

func TestQueued(t *testing.T) {
	d, _ := newLink(t, Settings{}, ReaderLimits{})
	var o owners
	one := 0
	for id := range uint64(20) {
		d.w.Request(id+1, typical(1), 0, o.next())
		if id == 0 {
			d.w.Append(nil, 0)
		}
		if id == 5 {
			one = d.w.Queued() // all text is interned by now
		} else if id == 6 {
			one = d.w.Queued() - one
		}
	}
	for id := uint64(2); id <= 20; id += 5 {
		d.w.Drop(id)
	}
	for d.w.Ready() {
		before := d.w.Queued()
		if n := len(d.w.Append(nil, 1)); before-n != d.w.Queued() {
			t.Fatalf("%d queued, %d sent, %d left", before, n, d.w.Queued())
		}
	}
	d.w.Request(21, big(1<<20), 0, o.next())
	if n := d.w.Queued(); one < 100 || n < 1<<20 || n > 1<<20+100 {
		t.Errorf("%d bytes for a message of 300, %d for one of 1 MiB", one, n)
	}
}

// Dropping messages for a peer that does not read frees their memory and keeps the
// others in order.
func TestDropMemory(t *testing.T) {
	d, a := newLink(t, Settings{}, ReaderLimits{})
	id := uint64(0)
	for range 100 {
		for range 100 {
			id++
			d.w.Request(id, typical(1), 0, nil)
		}
		for i := id - 99; i < id; i++ {
			d.w.Drop(i)
		}
	}
	if n := len(d.w.messages.buf); n > 200<<10 {
		t.Errorf("100 messages of 500 bytes are left and take %d", n)
	}
	exchange(t, d, a)
	if len(a.h.requests) != 100 || a.h.requests[100] == nil || a.h.requests[id] == nil {
		t.Errorf("%d requests arrived", len(a.h.requests))
	}
}

func TestReadyCredit(t *testing.T) {
	d, a := newLink(t, Settings{Window: 64 << 10}, ReaderLimits{})
	d.w.Credit(16<<10 - 1)
	if d.w.Ready() {
		t.Error("ready for less than a quarter of the window")
	}
	d.w.Ping(1)
	feed(t, a, d.w.Append(nil, 0))
	if !slices.Equal(a.h.events, []string{"credit 16383", "ping 1"}) {
		t.Errorf("got %q", a.h.events)
	}
	d.w.Credit(16 << 10)
	if !d.w.Ready() {
		t.Error("not ready for a quarter of the window")
	}
}

// batchOf returns a batch response with a body of n bytes.
func batchOf(n int) *protocol.Response {
	return &protocol.Response{Status: 200, Body: make([]byte, n), DeclaredLength: -1, Batch: true}
}

// A batch message waits for what is not batch: its body, even if it fits one frame, goes after
// whole messages and after the DATA of others, but for one DATA frame in batchFrames.
func TestScheduleBatchLast(t *testing.T) {
	d, a := newLink(t, Settings{Window: MaxWindow}, ReaderLimits{})
	for id := uint64(1); id <= 40; id++ {
		switch {
		case id <= 20:
			a.w.Response(id, batchOf(4<<10), protocol.CodecHTTP, nil)
		case id == 21:
			online := batchOf(MaxWindow - 1<<10)
			online.Batch = false
			a.w.Response(id, online, protocol.CodecHTTP, nil)
		default:
			a.w.Response(id, &protocol.Response{Status: 200, Body: make([]byte, 4<<10), DeclaredLength: -1}, protocol.CodecHTTP, nil)
		}
	}
	wire := a.w.Append(nil, 1<<20)
	whole, early, long := 0, 0, 0
	for _, f := range frames(t, wire) {
		switch {
		case f.typ == frameResponse && f.id > 21:
			whole++
		case f.typ == frameData && f.id == 21:
			long++
		case f.typ == frameData && whole < 19:
			t.Fatalf("DATA of batch message %d after %d of 19 whole messages", f.id, whole)
		case f.typ == frameData:
			early++
		}
	}
	if want := long / (batchFrames - 1); long < 15 || early < 1 || early > want+1 {
		t.Errorf("%d DATA frames of batch messages between %d of another, want %d", early, long, want)
	}
	feed(t, d, wire)
	a.w.Granted(d.r.TakeConsumed())
	exchange(t, d, a)
	if len(d.h.responses) != 40 {
		t.Errorf("%d responses arrived, want 40", len(d.h.responses))
	}
}

// Batch messages use half of the window, so that a long message of another kind need not wait
// for credit. They go on as credit comes.
func TestScheduleBatchWindow(t *testing.T) {
	const window = 64 << 10
	d, a := newLink(t, Settings{Window: window}, ReaderLimits{})
	for id := range uint64(4) {
		d.w.Request(id+1, &protocol.Request{Method: []byte("POST"), Path: []byte("/"), Body: make([]byte, 100<<10), Batch: true}, 0, nil)
	}
	count := func(wire []byte) (n int) {
		for _, f := range frames(t, wire) {
			if f.typ == frameData {
				n += f.length
			}
		}
		return n
	}
	wire := d.w.Append(nil, 1<<20)
	if n := count(wire); n != window/2 || d.w.Ready() || !d.w.Starved() {
		t.Fatalf("%d bytes of batch DATA without credit, then ready %t, starved %t; want half of %d", n, d.w.Ready(), d.w.Starved(), window)
	}
	d.w.Granted(1)
	if !d.w.Ready() || d.w.Starved() {
		t.Errorf("with a byte of credit more: ready %t, starved %t", d.w.Ready(), d.w.Starved())
	}
	wire = append(wire, d.w.Append(nil, 1<<20)...)
	if n := count(wire); n != window/2+1 {
		t.Errorf("%d bytes of batch DATA with a byte of credit more", n)
	}
	d.w.Request(5, big(20<<10), 0, nil)
	more := d.w.Append(nil, 1<<20)
	if n := count(more); n != 20<<10 || d.w.Ready() {
		t.Errorf("%d bytes of DATA beside batch messages, want all 20 KiB", n)
	}
	feed(t, a, append(wire, more...))
	d.w.Granted(a.r.TakeConsumed())
	exchange(t, d, a)
	if len(a.h.requests) != 5 || d.w.Starved() {
		t.Errorf("%d of 5 requests arrived", len(a.h.requests))
	}
}

// TestExceptionsAreShort: a frame that goes ahead of messages whose turn it is, is no longer than a whole message.
func TestExceptionsAreShort(t *testing.T) {
	for _, batch := range []bool{false, true} {
		_, a := newLink(t, Settings{Window: MaxWindow, MaxFrame: MaxFrame}, ReaderLimits{})
		respond := func(id uint64, n int, batch bool) {
			res := batchOf(n)
			res.Batch = batch
			a.w.Response(id, res, protocol.CodecHTTP, nil)
		}
		respond(1, 4<<20, batch)
		for id := uint64(2); id <= 12; id++ {
			respond(id, 17<<10, false)
		}
		exceptions, waiting := 0, 11
		for _, f := range frames(t, a.w.Append(nil, 1<<20)) {
			switch {
			case f.typ != frameData || waiting == 0:
			case f.id != 1:
				waiting--
			default:
				exceptions++
				if f.length > maxWhole-headerRoom {
					t.Errorf("batch %v: a frame of %d bytes before %d shorter messages", batch, f.length, waiting)
				}
			}
		}
		if exceptions == 0 {
			t.Errorf("batch %v: no frame of the longest message", batch)
		}
	}
}
