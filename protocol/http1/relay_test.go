package http1

import (
	"bytes"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
)

// relay forwards a body piece by piece, as a stream does.
type relay struct {
	d        Body
	dst      bytebufferpool.ByteBuffer
	out      []byte // the forwarded body in chunks
	passed   []byte // the forwarded body without framing
	held     int    // the largest length of dst
	used     int    // bytes of input
	trailers string
}

// piece forwards b and reports whether the body is complete.
func (r *relay) piece(b []byte) (done bool, err error) {
	n, done, err := r.d.Decode(b, &r.dst)
	if err != nil {
		return false, err
	}
	r.used += n
	r.held = max(r.held, len(r.dst.B))
	r.out = AppendChunk(r.out, r.dst.B[:r.d.Length()])
	r.passed = append(r.passed, r.dst.B[:r.d.Length()]...)
	r.d.Discard(&r.dst)
	if done {
		r.end()
	}
	return done, nil
}

func (r *relay) end() {
	trailers := r.d.Trailers(&r.dst, nil)
	r.trailers = headerText(trailers)
	r.out = AppendLastChunk(r.out, trailers)
}

// relayed forwards the first body of in, cut at the given offsets, and closes the
// connection after it.
func relayed(h *Head, lim *protocol.Limits, in []byte, cuts []int) (*relay, error) {
	r := &relay{}
	r.d.Reset(h, lim)
	from := 0
	for _, to := range append(cuts, len(in)) {
		piece := bytes.Clone(in[from:to])
		if done, err := r.piece(piece); done || err != nil {
			return r, err
		}
		clear(piece)
		from = to
	}
	if err := r.d.Close(); err != nil {
		return r, err
	}
	r.end()
	return r, nil
}

// whole decodes the first body of in as a message.
func whole(h *Head, lim *protocol.Limits, in []byte) (o outcome) {
	var d Body
	var dst bytebufferpool.ByteBuffer
	d.Reset(h, lim)
	if o.used, _, o.err = d.Decode(in, &dst); o.err == nil {
		o.err = d.Close()
	}
	o.body, o.trailers = string(dst.B[:d.Length()]), headerText(d.Trailers(&dst, nil))
	return o
}

// sameRelayed checks that a body that is forwarded in pieces equals the body decoded
// as a message, also for the next hop.
func sameRelayed(t *testing.T, h *Head, lim *protocol.Limits, in []byte, cuts []int) {
	t.Helper()
	want := whole(h, lim, in)
	got, err := relayed(h, lim, in, cuts)
	if err != want.err {
		t.Fatalf("%q cut at %d: %v, whole %v", in, cuts, err, want.err)
	}
	if err != nil {
		return
	}
	if string(got.passed) != want.body || got.trailers != want.trailers || got.used != want.used {
		t.Fatalf("%q cut at %d:\ngot  %q %q %d\nwant %+v", in, cuts, got.passed, got.trailers, got.used, want)
	}
	again := whole(&Head{Framing: Chunked}, &protocol.Limits{Header: 1 << 20, Headers: 128, Message: protocol.NoLimit}, append(got.out, rest...))
	if again.err != nil || again.body != want.body || again.trailers != want.trailers || again.used != len(got.out) {
		t.Fatalf("%q cut at %d became %q: %+v", in, cuts, got.out, again)
	}
}

// streamBodies are bodies with every framing.
var streamBodies = []struct {
	head Head
	in   string
}{
	{Head{}, "GET"},
	{Head{Framing: FixedLength}, "GET"},
	{Head{Framing: FixedLength, Length: 11}, "hello worldGET"},
	{Head{Framing: FixedLength, Length: 11}, "hello worl"},
	{Head{Framing: UntilClose}, ""},
	{Head{Framing: UntilClose}, "hello world"},
	{Head{Framing: Chunked}, "0\r\n\r\nGET"},
	{Head{Framing: Chunked}, "5\r\nhello\r\n1;x=y\r\n \r\n005 ;z\r\nworld\r\n0\r\n\r\nGET"},
	{Head{Framing: Chunked}, "5\r\nhello\r\n0;x\r\nX-Sum: 1\r\nContent-Length: 3\r\nY:\r\n\r\nGET"},
	{Head{Framing: Chunked}, "b\r\nhello\r\n0\r\n\r\n\r\n0\r\nX: y\r\n\r\n"},
	{Head{Framing: Chunked}, "5\r\nhello\r\n0\r\nX: y\r\nZ: "},
	{Head{Framing: Chunked}, "5\r\nhello\r\n5\r\nwor"},
	{Head{Framing: Chunked}, "5\r\nhelloX"},
	{Head{Framing: Chunked}, "5\r\nhello\r\n0\r\nX: y\nZ: z\r\n\r\n"},
	{Head{Framing: Chunked}, "5\r\nhello\r\n4000000000000001\r\n"},
}

// TestRelay cuts at every byte, at every pair of bytes, and everywhere.
func TestRelay(t *testing.T) {
	lim := &protocol.Limits{Header: 256, Headers: 8, Message: protocol.NoLimit}
	for _, c := range streamBodies {
		var each []int
		for i := range len(c.in) + 1 {
			each = append(each, i)
			for j := i; j <= len(c.in); j++ {
				sameRelayed(t, &c.head, lim, []byte(c.in), []int{i, j})
			}
		}
		sameRelayed(t, &c.head, lim, []byte(c.in), each)
	}
}

// TestRelayRandom forwards random bodies with random framing and splits.
func TestRelayRandom(t *testing.T) {
	lim := &protocol.Limits{Header: 512, Headers: 12, Message: protocol.NoLimit}
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 7))
		h, in := randomBody(rng)
		sameRelayed(t, &h, lim, in, randomCuts(rng, len(in)))
	}
}

func randomBody(rng *rand.Rand) (h Head, in []byte) {
	h.Framing = Framing(1 + rng.IntN(3))
	for range rng.IntN(8) {
		piece := make([]byte, rng.IntN(1+rng.IntN(300)))
		for i := range piece {
			piece[i] = "0\r\n:a"[rng.IntN(5)] // bytes that resemble framing
		}
		if h.Framing == Chunked {
			in = AppendChunk(in, piece)
		} else {
			in = append(in, piece...)
		}
	}
	switch h.Framing {
	case FixedLength:
		h.Length = int64(len(in))
	case Chunked:
		in = AppendLastChunk(in, hdr("X-Sum", "1", "Vary", "x", "Y", "")[:rng.IntN(4)])
	}
	if h.Framing != UntilClose {
		in = append(in, rest...)
	}
	return h, in
}

// TestRelayMemory checks that the buffer holds one piece and the trailer section,
// however long the body is.
func TestRelayMemory(t *testing.T) {
	var r relay
	lim := &protocol.Limits{Header: 256, Headers: 8, Message: protocol.NoLimit}
	r.d.Reset(&Head{Framing: Chunked}, lim)
	feed := func(piece string) bool {
		done, err := r.piece([]byte(piece))
		if err != nil {
			t.Fatal(err)
		}
		return done
	}
	feed("100000\r\n")
	for range 1 << 20 / 64 {
		feed(strings.Repeat("b", 64))
	}
	for _, c := range "\r\n0\r\nX-Sum: 1\r\n\r" {
		feed(string(c))
	}
	if !feed("\n") || len(r.passed) != 1<<20 || r.trailers != "X-Sum=1;" || r.held > 64 || cap(r.dst.B) > 1<<10 {
		t.Errorf("%d forwarded, trailers %q, at most %d held in %d", len(r.passed), r.trailers, r.held, cap(r.dst.B))
	}
}

// TestDiscardNoBody checks that a body of no bytes needs no buffer.
func TestDiscardNoBody(t *testing.T) {
	var d Body
	d.Reset(&Head{}, testLimits)
	d.Discard(nil)
	if !d.Done() {
		t.Error("not done")
	}
}

// TestRelayLimits checks that forwarded bytes count against the limit.
func TestRelayLimits(t *testing.T) {
	lim := &protocol.Limits{Header: 64, Headers: 4, Message: 10}
	for name, c := range map[string]struct {
		head Head
		in   string
		want error
	}{
		"chunks at the limit": {Head{Framing: Chunked}, "5\r\nhello\r\n5\r\nworld\r\n0\r\n\r\n", nil},
		"chunks over":         {Head{Framing: Chunked}, "5\r\nhello\r\n6\r\nworlds\r\n0\r\n\r\n", ErrMessageTooLarge},
		"close at the limit":  {Head{Framing: UntilClose}, "helloworld", nil},
		"close over":          {Head{Framing: UntilClose}, "helloworlds", ErrMessageTooLarge},
		"length over":         {Head{Framing: FixedLength, Length: 11}, "helloworlds", ErrMessageTooLarge},
	} {
		var each []int
		for i := range len(c.in) {
			each = append(each, i)
		}
		if _, err := relayed(&c.head, lim, []byte(c.in), each); err != c.want {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// TestRelayChunkSizeOverflow checks that sizes are refused if they, or their sum with
// the forwarded bytes, overflow.
func TestRelayChunkSizeOverflow(t *testing.T) {
	for _, c := range []struct {
		in   string
		want error
	}{
		{"4000000000000000\r\n", nil},
		{"4000000000000001\r\n", ErrMessageTooLarge},
		{"7fffffffffffffff\r\n", ErrMessageTooLarge},
		{"ffffffffffffffff\r\n", ErrMessageTooLarge},
		{"10000000000000000\r\n", ErrBadChunkSize},
		{"1\r\nb\r\n3fffffffffffffff\r\n", nil},
		{"1\r\nb\r\n4000000000000000\r\n", ErrMessageTooLarge},
	} {
		r := &relay{}
		r.d.Reset(&Head{Framing: Chunked}, &protocol.Limits{Header: 64, Headers: 4, Message: protocol.NoLimit})
		var err error
		for i := 0; i < len(c.in) && err == nil; i++ {
			_, err = r.piece([]byte{c.in[i]})
		}
		if err != c.want {
			t.Errorf("%q: %v, want %v", c.in, err, c.want)
		}
	}
}

// TestRelayChunkOverhead checks that forwarded content still pays for its framing,
// and that a peer which sends only framing is refused as for a decoded message.
func TestRelayChunkOverhead(t *testing.T) {
	lim := &protocol.Limits{Header: 64, Headers: 4, Message: protocol.NoLimit}
	r := &relay{}
	r.d.Reset(&Head{Framing: Chunked}, lim)
	for range 1000 { // six bytes of framing per byte of content
		if _, err := r.piece([]byte("01\r\nb\r\n")); err != nil {
			t.Fatal(err)
		}
	}
	padding := int64(64 + 8*1000 - 6*1000 - len("1;"))
	if _, err := r.piece([]byte("1;" + strings.Repeat("x", int(padding)))); err != nil {
		t.Fatal(err)
	}
	if _, err := r.piece([]byte("x")); err != error(ErrChunkOverhead) {
		t.Error(err)
	}
}

func TestVerbatim(t *testing.T) {
	lim := &protocol.Limits{Header: 64, Headers: 4, Message: protocol.NoLimit}
	var d Body
	var dst bytebufferpool.ByteBuffer
	verbatim := func(when string, want int64) {
		t.Helper()
		if got := d.Verbatim(); got != want {
			t.Errorf("%s: %d, want %d", when, got, want)
		}
	}
	decode := func(in string, n int, done bool, err error) {
		t.Helper()
		if gotN, gotDone, gotErr := d.Decode([]byte(in), &dst); gotN != n || gotDone != done || gotErr != err {
			t.Errorf("Decode: %d, %t, %v", gotN, gotDone, gotErr)
		}
	}

	d.Reset(&Head{Framing: FixedLength, Length: 10}, lim)
	verbatim("length, new", 10)
	decode("abc", 3, false, nil)
	verbatim("length, 3 held", 7)
	d.Skip(5) // the bytes in dst count separately
	verbatim("length, 5 skipped", 2)
	decode("d", 1, false, nil)
	d.Discard(&dst)
	verbatim("length, all but one", 1)
	if len(dst.B) != 0 || d.Close() != error(ErrTruncated) {
		t.Errorf("%q, %v", dst.B, d.Close())
	}
	d.Skip(1)
	verbatim("length, all", 0)
	if !d.Done() || d.Close() != nil {
		t.Error("not done")
	}
	decode("GET", 0, true, nil)

	d.Reset(&Head{Framing: FixedLength, Length: math.MaxInt64}, lim)
	verbatim("length over the limit", protocol.NoLimit)
	decode("a", 0, false, ErrMessageTooLarge)

	d.Reset(&Head{Framing: UntilClose}, lim)
	verbatim("until close, new", protocol.NoLimit)
	d.Skip(1 << 40)
	verbatim("until close, 1 TiB skipped", protocol.NoLimit-1<<40)
	d.Skip(protocol.NoLimit - 1<<40)
	verbatim("until close, at the limit", 0)
	decode("a", 0, false, ErrMessageTooLarge)
	if d.Done() || d.Close() != nil || !d.Done() {
		t.Error("the close does not end the body")
	}

	for _, h := range []Head{{}, {Framing: FixedLength}, {Framing: Chunked}} {
		d.Reset(&h, lim)
		verbatim("nothing or chunks", 0)
	}
	decode("5\r\nhel", 6, false, nil)
	d.Discard(&dst)
	verbatim("in a chunk", 2)
	d.Skip(1)
	verbatim("the last byte of a chunk", 1)
	d.Skip(1)
	verbatim("behind a chunk", 0)
	decode("\r\n1\r\nx\r\n0\r\na: b\r\n\r\n", 19, true, nil)
	if got := d.Trailers(&dst, nil); d.Length() != 1 || len(got) != 1 || string(got[0].Value) != "b" {
		t.Errorf("%d bytes and the trailers %q after a skipped chunk", d.Length(), got)
	}
}

// BenchmarkRelay forwards a body in chunks of 16 KiB, as a stream between two
// sidecars does.
func BenchmarkRelay(b *testing.B) {
	pass := newCopy(b)
	b.SetBytes(relayChunk)
	b.ReportAllocs()
	for b.Loop() {
		pass()
	}
}

// TestNoAllocationsRelay checks that a stream allocates nothing per chunk.
func TestNoAllocationsRelay(t *testing.T) {
	checkNoAllocations(t, "relayed chunk", newCopy(t))
}

const relayChunk = 16 << 10

// newCopy returns the loop body of a stream: it forwards one chunk, cut in two.
func newCopy(tb testing.TB) (pass func()) {
	var d Body
	var dst bytebufferpool.ByteBuffer
	d.Reset(&Head{Framing: Chunked}, &protocol.Limits{Header: 1 << 10, Headers: 8, Message: protocol.NoLimit})
	in := AppendChunk(nil, bytes.Repeat([]byte("s"), relayChunk))
	out := make([]byte, 0, 2*relayChunk)
	return func() {
		out = out[:0]
		for _, piece := range [][]byte{in[:relayChunk/2], in[relayChunk/2:]} {
			if n, _, err := d.Decode(piece, &dst); n != len(piece) || err != nil {
				tb.Fatal(n, err)
			}
			out = AppendChunk(out, dst.B[:d.Length()])
			d.Discard(&dst)
		}
		if len(out) < relayChunk || len(dst.B) != 0 {
			tb.Fatal(len(out), len(dst.B))
		}
	}
}
