package link

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
)

// TestControlsReady: each control frame makes a Writer ready, and leaves. Credit alone does not, until there is enough of it.
func TestControlsReady(t *testing.T) {
	for _, c := range []struct {
		name string
		call func(*Writer)
		want []string
	}{
		{"ping", func(w *Writer) { w.Ping(0) }, []string{"ping 0"}},
		{"pong", func(w *Writer) { w.Pong(0) }, []string{"pong 0"}},
		{"load", func(w *Writer) { w.Load(Load{SinceResponse: -1}) }, []string{"load pending=0 queued=0 latency=0s since=-1ns"}},
		{"refused", func(w *Writer) { w.Refused(1, NoSlot) }, []string{"refused 1 no_slot"}},
		{"least credit beside a ping", func(w *Writer) { w.Credit(1); w.Ping(0) }, []string{"credit 1", "ping 0"}},
		{"credit twice", func(w *Writer) { w.Credit(1 << 14); w.Credit(1 << 14) }, []string{"credit 32768"}},
		{"most credit", func(w *Writer) { w.Credit(1<<32 - 1) }, []string{"credit 4294967295"}},
	} {
		d, a := newLink(t, Settings{}, ReaderLimits{})
		if a.w.Ready() {
			t.Fatal("ready for nothing")
		}
		c.call(a.w)
		if !a.w.Ready() {
			t.Errorf("%s: not ready", c.name)
		}
		feed(t, d, a.w.Append(nil, 0))
		if !slices.Equal(d.h.events, c.want) || a.w.Ready() {
			t.Errorf("%s: %q, and then ready %t; want %q", c.name, d.h.events, a.w.Ready(), c.want)
		}
	}
}

// TestControlsClosed: after Close no control frame waits, and none is taken.
func TestControlsClosed(t *testing.T) {
	_, a := newLink(t, Settings{}, ReaderLimits{})
	if n := a.w.Interned(); n != 0 {
		t.Errorf("%d bytes are held before the first message", n)
	}
	a.w.Response(1, typicalResponse(), protocol.CodecHTTP, nil)
	a.w.CancelAck(1, CancelDropped)
	if a.w.Queued() == 0 || a.w.Interned() == 0 {
		t.Errorf("%d bytes wait, %d are held", a.w.Queued(), a.w.Interned())
	}
	a.w.Close()
	a.w.CancelAck(2, CancelDropped)
	if n := a.w.Control(); n != 0 || a.w.Ready() || a.w.Queued() != 0 || a.w.Interned() != 0 {
		t.Errorf("%d bytes wait, %d are held", n, a.w.Interned())
	}
}

// TestLoadLimits: numbers that do not fit are the largest that do.
func TestLoadLimits(t *testing.T) {
	const most, longest = 1<<32 - 1, (1<<63 - 1) / 1000 * 1000
	for _, c := range []struct {
		sent [4]uint64
		want Load
	}{
		{[4]uint64{most, most, maxMicros, maxMicros + 1}, Load{most, most, longest, longest}},
		{[4]uint64{most + 1, most + 1, maxMicros + 1, maxMicros + 2}, Load{most, most, longest, longest}},
		{[4]uint64{1<<64 - 1, 1<<64 - 1, 1<<64 - 1, 1<<64 - 1}, Load{most, most, longest, longest}},
		{[4]uint64{0, 0, 0, 1}, Load{SinceResponse: 0}},
		{[4]uint64{1, 2, 3, 2}, Load{1, 2, 3 * time.Microsecond, time.Microsecond}},
	} {
		var b []byte
		for _, v := range c.sent {
			b = binary.AppendUvarint(b, v)
		}
		if got, err := parseLoad(b); err != nil || got != c.want {
			t.Errorf("%v: %+v, %v, want %+v", c.sent, got, err, c.want)
		}
	}
}

// TestKeptMemory: memory up to a bound is kept for the next messages, and none above.
func TestKeptMemory(t *testing.T) {
	buf := func(n int) []byte { return make([]byte, 0, n) }
	for _, c := range []struct {
		name string
		most int
		kept func(n int) bool // whether n bytes, or segments, are kept
	}{
		{"control frames", keepBuffer, func(n int) bool { return emptied(buf(n)) != nil }},
		{"the head, trimmed", keepIdle, func(n int) bool {
			w := NewWriter()
			w.scratch = buf(n)
			w.Trim()
			return w.scratch != nil
		}},
		{"messages, trimmed", keepIdle, func(n int) bool {
			q := queue{buf: buf(n)}
			q.trim()
			return q.buf != nil
		}},
		{"messages after little", keepBuffer, func(n int) bool {
			q := queue{buf: buf(n)[:10]}
			q.clear()
			return q.buf != nil
		}},
		{"messages after much", keepInUse, func(n int) bool {
			q := queue{buf: buf(n)[:n]}
			q.clear()
			return q.buf != nil
		}},
		{"segments", keepBuffer / 32, func(n int) bool {
			q := queue{segs: make([]segment, 0, n)}
			q.clear()
			return q.segs != nil
		}},
	} {
		if !c.kept(c.most) || c.kept(c.most+1) {
			t.Errorf("%s: %d kept %t, %d kept %t", c.name, c.most, c.kept(c.most), c.most+1, c.kept(c.most+1))
		}
	}
	for used, want := range map[int]bool{keepInUse/4 - 1: false, keepInUse / 4: true} {
		q := queue{buf: buf(keepInUse)[:used]}
		if q.clear(); (q.buf != nil) != want {
			t.Errorf("%d of %d bytes were used: kept %t", used, keepInUse, q.buf != nil)
		}
	}
}

// TestCompaction: the queue drops what has left, or was dropped, once that is more than compactOver and than half of it.
func TestCompaction(t *testing.T) {
	for _, c := range []struct {
		name  string
		sizes []int // of the messages; all but the last end
		want  bool
	}{
		{"little", []int{compactOver / 2, compactOver / 2, 1}, false},
		{"enough", []int{compactOver / 2, compactOver/2 + 1, 1}, true},
		{"half", []int{5000, 5000}, false},
		{"more than half", []int{5001, 5000}, true},
	} {
		for _, how := range []string{"dropped", "taken"} {
			var q queue
			all := 0
			for i, n := range c.sizes {
				q.buf = append(q.buf, make([]byte, n)...)
				q.push(uint64(i+1), nil)
				all += n
			}
			last := len(c.sizes) - 1
			if how == "taken" {
				q.take(nil, all-c.sizes[last], nil)
			} else {
				for i := range last {
					q.kill(q.find(uint64(i + 1)))
				}
			}
			if got := len(q.buf) < all; got != c.want || q.pending() != c.sizes[last] {
				t.Errorf("%s, %s: %d of %d bytes are there, %d wait", c.name, how, len(q.buf), all, q.pending())
			}
		}
	}
}

// TestDropAll: a queue whose messages were all dropped is empty, and may be trimmed.
func TestDropAll(t *testing.T) {
	q := queue{buf: make([]byte, 0, 2*keepIdle)}
	for id := range uint64(3) {
		q.buf = append(q.buf, "message"...)
		q.push(id+1, nil)
	}
	for id := range uint64(3) {
		q.kill(q.find(id + 1))
	}
	if len(q.buf) != 0 || len(q.segs) != 0 || q.pending() != 0 {
		t.Errorf("%d bytes, %d segments", len(q.buf), len(q.segs))
	}
	q.trim()
	q.buf = append(q.buf, "next"...)
	q.push(4, nil)
	if b := q.take(nil, 1, nil); string(b) != "next" {
		t.Errorf("then %q", b)
	}
}

// TestFreeMessages: a bounded number of structures is kept for the next long messages.
func TestFreeMessages(t *testing.T) {
	d, a := newLink(t, Settings{Window: MaxWindow}, ReaderLimits{})
	for id := range uint64(2 * maxFree) {
		d.w.Request(id+1, big(20<<10), 0, nil)
	}
	feed(t, a, d.w.appendMessages(nil, 1<<30)) // all are in reassembly now
	for id := range uint64(2 * maxFree) {
		d.w.Drop(id + 1)
		a.r.Forget(id + 1)
	}
	if sent, received := len(d.w.data.free), len(a.r.assembly.free); sent != maxFree || received != maxFree {
		t.Errorf("%d and %d are kept, want %d", sent, received, maxFree)
	}
	for id := range uint64(maxFree) {
		d.w.Request(2*maxFree+id+1, big(20<<10), 0, nil)
	}
	feed(t, a, d.w.appendMessages(nil, 1<<30))
	if sent, received := len(d.w.data.free), len(a.r.assembly.free); sent != 0 || received != 0 {
		t.Errorf("%d and %d are left beside as many new messages", sent, received)
	}
}

// TestLargestTie: of messages that hold the same memory, that with the lowest id counts as the largest, at either end.
func TestLargestTie(t *testing.T) {
	const many = 40
	d, a := newLink(t, Settings{Window: MaxWindow}, ReaderLimits{})
	largest := func(want uint64) {
		t.Helper()
		if id, n := d.w.Largest(); id != want || n == 0 {
			t.Errorf("to send: request %d, of %d bytes, want %d", id, n, want)
		}
		if id, n := a.r.Largest(); id != want || n == 0 {
			t.Errorf("in reassembly: request %d, of %d bytes, want %d", id, n, want)
		}
	}
	send := func(id uint64, header, body int) {
		req := big(body)
		req.Headers = headers("x", string(slices.Repeat([]byte{'v'}, header)))
		d.w.Request(id, req, 0, nil)
	}
	for id := range uint64(many) {
		send(id+1, 1000, 20<<10)
	}
	feed(t, a, d.w.appendMessages(nil, 1<<30)) // the whole heads
	largest(1)
	d.w.Drop(1)
	a.r.Forget(1)
	largest(2)
	send(many+1, 2000, 30<<10)
	feed(t, a, d.w.appendMessages(nil, 1<<30))
	largest(many + 1)
}

// TestStarved: DATA without credit starves, and no other message does.
func TestStarved(t *testing.T) {
	d, _ := newLink(t, Settings{Window: 32 << 10}, ReaderLimits{})
	d.w.Request(1, typical(1), 0, nil)
	d.w.Request(2, big(64<<10), 0, nil)
	if d.w.Starved() {
		t.Error("before anything has left")
	}
	d.w.Append(nil, 1<<20)
	if !d.w.Starved() {
		t.Error("not starved without credit")
	}
	if d.w.Granted(1); !d.w.Starved() || d.w.Ready() {
		t.Error("not starved with a byte of credit, or ready")
	}
	if d.w.Granted(2 << 10); d.w.Starved() || !d.w.Ready() {
		t.Error("starved with credit, or not ready")
	}
	d.w.Append(nil, 1<<20)
	if !d.w.Starved() {
		t.Error("not starved after the credit")
	}
	if d.w.Drop(2); d.w.Starved() {
		t.Error("starved without DATA")
	}
}

// TestExpireClosed: Expire returns the error of a Reader that has failed. A closed Reader has no slow frame.
func TestExpireClosed(t *testing.T) {
	d, a := newLink(t, Settings{}, ReaderLimits{})
	d.w.Request(1, big(100<<10), 0, nil)
	b := d.w.Append(nil, 1<<20)
	feed(t, a, b[:len(b)/2])
	a.r.Close()
	for now := time.Second; now < 4*time.Second; now += time.Second {
		if err := a.r.Expire(now, time.Second); err != nil {
			t.Errorf("closed, at %s: %v", now, err)
		}
	}
	_, failed := newLink(t, Settings{}, ReaderLimits{})
	want := failed.r.Feed([]byte{0, 0, 0})
	if err := failed.r.Expire(time.Second, time.Second); err == nil || err != want {
		t.Errorf("failed: %v, want %v", err, want)
	}
}

// TestReasons: which reasons let another endpoint take the request, and that each has a name of its own.
func TestReasons(t *testing.T) {
	names := map[string]bool{}
	for r := range 256 {
		r := Reason(r)
		if got := r.Retryable(); got != (r < DeadlinePassed) {
			t.Errorf("%d: retryable %t", r, got)
		}
		if name := r.String(); name != "unknown" && names[name] {
			t.Errorf("%d: another reason has the name %s", r, name)
		} else {
			names[name] = true
		}
	}
	if len(names) != 17 || !names["unknown"] {
		t.Errorf("%d names", len(names))
	}
}

// TestReaderCounts: a Reader counts the requests that have begun, and the memory of each that is incomplete.
func TestReaderCounts(t *testing.T) {
	d, a := newLink(t, Settings{}, ReaderLimits{})
	d.w.Request(1, big(10), 0, nil)
	d.w.Request(2, big(100<<10), 0, nil)
	b := d.w.Append(nil, 1<<20)
	feed(t, a, b[:len(b)-1])
	if n := a.r.Assembled(2); a.r.Requests() != 2 || a.r.Assembled(1) != 0 || n < len(b)/2 || n != a.r.Buffered() {
		t.Errorf("%d requests, %d and %d bytes of %d", a.r.Requests(), a.r.Assembled(1), n, a.r.Buffered())
	}
	feed(t, a, b[len(b)-1:])
	exchange(t, d, a)
	if a.r.Requests() != 2 || a.r.Assembled(2) != 0 || a.h.requests[2] == nil {
		t.Errorf("%d requests, %d bytes of one that is complete", a.r.Requests(), a.r.Assembled(2))
	}
}

// TestCutHeads: a head ends a link, wherever it is cut, and so does one whose list of headers is longer than the head.
func TestCutHeads(t *testing.T) {
	req := typical(1)
	req.Service, req.Trailers = nil, headers("a", "b") // a service would enter the table
	resp := typicalResponse()
	resp.Reason, resp.DeclaredLength, resp.RPC, resp.Trailers = []byte("other"), 300, 1, headers("a", "b")
	head := func(append func(*interner) []byte) []byte { return append(NewWriter().table()) }
	for name, c := range map[string]struct {
		role Role
		typ  frameType
		head []byte
	}{
		"request":  {Acceptor, frameRequest, head(func(t *interner) []byte { return t.appendRequest(nil, req, time.Second) })},
		"response": {Dialer, frameResponse, head(func(t *interner) []byte { return t.appendResponse(nil, resp, protocol.CodecHTTP) })},
	} {
		for n := range len(c.head) + 1 {
			d, a := newLink(t, Settings{}, ReaderLimits{})
			e := map[Role]*side{Dialer: d, Acceptor: a}[c.role]
			payload := append(binary.AppendUvarint(nil, uint64(n)), c.head[:n]...)
			err := e.r.Feed(append(appendHeader(nil, uint8(c.typ), 1, len(payload)), payload...))
			var want error
			if n < len(c.head) {
				want = ErrHead
			}
			if err != want {
				t.Errorf("%s of %d bytes, cut at %d: %v, want %v", name, len(c.head), n, err, want)
			}
		}
	}
}

// TestResponseErrors: which frames of an acceptor end a link.
func TestResponseErrors(t *testing.T) {
	ok := []byte{5, 0, 0, 0xc8, 1, 0}
	begun := append(appendHeader(nil, uint8(frameResponse)|flagMore, 1, 4), 40, 2, 0, 0)
	frame := func(typ frameType, id uint64, payload ...byte) []byte {
		return append(appendHeader(nil, uint8(typ), id, len(payload)), payload...)
	}
	for name, c := range map[string]struct {
		b    []byte
		want error
	}{
		"a response":                       {frame(frameResponse, 1, ok...), nil},
		"a response to no request":         {frame(frameResponse, 0, ok...), ErrStreamID},
		"a response within another":        {append(bytes.Clone(begun), frame(frameResponse, 1, ok...)...), ErrStreamID},
		"a response beside another":        {append(bytes.Clone(begun), frame(frameResponse, 2, ok...)...), nil},
		"an interim response within it":    {append(bytes.Clone(begun), frame(frameInterim, 1, 100, 0)...), ErrStreamID},
		"an interim response beside it":    {append(bytes.Clone(begun), frame(frameInterim, 2, 100, 0)...), nil},
		"an interim response that is cut":  {frame(frameInterim, 1, 100), ErrHead},
		"an interim response to nothing":   {frame(frameInterim, 0, 100, 0), ErrStreamID},
		"a refusal without a reason":       {frame(frameRefused, 1), ErrPayload},
		"a refusal of nothing":             {frame(frameRefused, 0, 1), ErrStreamID},
		"a refusal":                        {frame(frameRefused, 1, 1), nil},
		"an acknowledgement without state": {frame(frameCancelAck, 1), ErrPayload},
		"an acknowledgement of nothing":    {frame(frameCancelAck, 0, 1), ErrStreamID},
		"an acknowledgement":               {frame(frameCancelAck, 1, 1), nil},
		"a short answer":                   {frame(frameAnswer, 0, 1, 2, 3), ErrPayload},
		"an answer":                        {frame(frameAnswer, 0, 1, 2, 3, 4), nil},
		"a short load":                     {frame(frameLoad, 0, 1, 2, 3), ErrPayload},
		"a request":                        {frame(frameRequest, 1, ok...), ErrRole},
		"a CANCEL":                         {frame(frameCancel, 1), ErrRole},
		"a PROBE":                          {frame(frameProbe, 0), ErrRole},
	} {
		d, _ := newLink(t, Settings{}, ReaderLimits{})
		if err := d.r.Feed(c.b); err != c.want {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// TestOpenAgain: a Writer takes the settings of one preface, and none once it is closed.
func TestOpenAgain(t *testing.T) {
	d, _ := newLink(t, Settings{}, ReaderLimits{})
	d.w.Open(MaxVersion, Settings{MaxFrame: MinFrame})
	d.w.Request(1, big(8<<10), 0, nil)
	if n := len(d.w.Append(nil, 1<<20)); n < 8<<10 || d.w.Waiting() != 0 {
		t.Errorf("%d bytes in one frame, %d wait", n, d.w.Waiting())
	}
	d.w.Close()
	if d.w.Open(MaxVersion, Settings{}); d.w.Ready() {
		t.Error("a closed Writer is open")
	}
}

// TestTable: what the interning table of a Writer takes, and how much memory its texts have.
func TestTable(t *testing.T) {
	table := func() *interner { return NewWriter().table() }
	for n, want := range map[int]bool{minEntry - 1: false, minEntry: true, maxEntry: true, maxEntry + 1: false} {
		if got := table().lookup(slices.Repeat([]byte{'x'}, n), 0, kindService) != 0; got != want {
			t.Errorf("a text of %d bytes has an entry: %t", n, got)
		}
	}
	for _, c := range []struct {
		name string
		t    interner
		size int
		k    kind
		want bool
	}{
		{"last entry", interner{entries: make([]entry, tableEntries-1)}, 3, kindName, true},
		{"one more", interner{entries: make([]entry, tableEntries)}, 3, kindName, false},
		{"last bytes", interner{bytes: tableBytes - 10}, 10, kindName, true},
		{"a byte more", interner{bytes: tableBytes - 10}, 11, kindName, false},
		{"last value", interner{values: valueEntries - 1}, 3, kindValue, true},
		{"one more value", interner{values: valueEntries}, 3, kindValue, false},
		{"a name beside all values", interner{values: valueEntries, valueBytes: valueBytes}, 3, kindName, true},
		{"last bytes of values", interner{valueBytes: valueBytes - 10}, 10, kindValue, true},
		{"a byte more of values", interner{valueBytes: valueBytes - 10}, 11, kindValue, false},
	} {
		if got := c.t.room(c.size, c.k); got != c.want {
			t.Errorf("%s: room %t", c.name, got)
		}
	}
	for _, c := range []struct{ size, texts, held int }{
		{ownBlock, textBlock / ownBlock, textBlock}, {ownBlock, textBlock/ownBlock + 1, 2 * textBlock}, {ownBlock + 1, 1, ownBlock + 1},
	} {
		var all texts
		for range c.texts {
			all.clone(make([]byte, c.size))
		}
		if all.held != c.held {
			t.Errorf("%d texts of %d bytes: %d bytes of memory, want %d", c.texts, c.size, all.held, c.held)
		}
	}
	for entries, room := range map[int]int{0: leastEntries, 7: leastEntries, 8: 16, 16: 32} {
		all := make([]entry, 0)
		for range entries {
			all = append(grown(all), entry{})
		}
		if got := cap(grown(all)); got != room {
			t.Errorf("beside %d entries: room for %d, want %d", entries, got, room)
		}
	}
}

// TestRepeats: of the texts that share a set, the latest four are remembered.
func TestRepeats(t *testing.T) {
	var table interner
	hash := func(i uint64) uint64 { return i << 33 } // all in the same set
	for i := range uint64(5) {
		if table.repeats(hash(i + 1)) {
			t.Errorf("text %d is known", i+1)
		}
	}
	for _, i := range []uint64{5, 4, 3, 2} {
		if !table.repeats(hash(i)) {
			t.Errorf("text %d is forgotten", i)
		}
	}
	if table.repeats(hash(1)) {
		t.Error("the first text is still known")
	}
}

// TestUnsent: a request is unsent until its last byte has left.
func TestUnsent(t *testing.T) {
	d, _ := newLink(t, Settings{Window: MaxWindow}, ReaderLimits{})
	d.w.Request(1, typical(1), 0, nil)
	d.w.Request(2, big(40<<10), 0, nil)
	unsent := func(when string, want1, want2 bool) {
		t.Helper()
		if got1, got2 := d.w.Unsent(1), d.w.Unsent(2); got1 != want1 || got2 != want2 || d.w.Unsent(3) {
			t.Errorf("%s: %t and %t", when, got1, got2)
		}
	}
	unsent("queued", true, true)
	d.w.appendMessages(nil, 1<<30)
	unsent("with their heads sent", false, true)
	d.w.Append(nil, 1<<20)
	unsent("sent", false, false)
}

// TestWaiting: a long message counts with its owner's memory, and with the part of the head that did not fit its first frame.
func TestWaiting(t *testing.T) {
	d, _ := newLink(t, Settings{}, ReaderLimits{})
	req := big(100)
	req.Headers = headers("x", string(slices.Repeat([]byte{'v'}, 20_000)))
	d.w.Request(1, req, 0, &owned{all: &owners{given: 1}, size: 5000})
	rest := len(d.w.data.all[1].head.B)
	if n := d.w.Waiting(); rest < 1000 || n < 5000+rest {
		t.Errorf("%d bytes wait, with 5000 of the owner and %d of the head", n, rest)
	}
}

// TestBudget: Gather and the queue stop at the budget, not behind it.
func TestBudget(t *testing.T) {
	writer := func(reqs ...*protocol.Request) *Writer {
		d, _ := newLink(t, Settings{Window: MaxWindow}, ReaderLimits{})
		for i, req := range reqs {
			d.w.Request(uint64(i+1), req, 0, nil)
		}
		return d.w
	}
	for name, reqs := range map[string][]*protocol.Request{
		"DATA": {big(100 << 10)}, "messages": {{Method: []byte("A"), Path: []byte("/")}, {Method: []byte("B"), Path: []byte("/")}},
	} {
		least := len(writer(reqs...).Append(nil, 0))
		for budget, more := range map[int]bool{least: false, least + 1: true} {
			if n := len(writer(reqs...).Append(nil, budget)); (n > least) != more {
				t.Errorf("%s: %d bytes for a budget of %d, and %d for none", name, n, budget, least)
			}
		}
	}
}

// TestAcceptorIgnores: what only says something to a dialer is no error at an acceptor, if it is well formed.
func TestAcceptorIgnores(t *testing.T) {
	_, a := newLink(t, Settings{}, ReaderLimits{})
	feed(t, a, append(appendHeader(nil, uint8(frameGoAway), 1, 1), byte(Draining)))
	feed(t, a, appendLoad(nil, frameLoad, Load{}))
	if len(a.h.events) != 0 {
		t.Errorf("got %q", a.h.events)
	}
}

// TestDeclaredLengths: a length that does not fit is the largest that does.
func TestDeclaredLengths(t *testing.T) {
	for sent, want := range map[uint64]int64{0: 0, 1<<63 - 2: 1<<63 - 2, 1<<63 - 1: 1<<63 - 1, 1 << 63: 1<<63 - 1, 1<<64 - 1: 1<<63 - 1} {
		head := binary.AppendUvarint([]byte{0, responseDeclared}, 200)
		head = append(binary.AppendUvarint(head, sent), 0)
		var resp protocol.Response
		c := cursor{b: head, names: &table{}, size: 1000}
		if c.readResponse(&resp, 1); resp.DeclaredLength != want || c.err != nil || c.why != 0 {
			t.Errorf("%d: %d, %v, %v", sent, resp.DeclaredLength, c.err, c.why)
		}
	}
}
