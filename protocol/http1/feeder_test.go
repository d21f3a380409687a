package http1

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
)

// testLimits are small, so that inputs that reach them stay readable.
var testLimits = &protocol.Limits{Header: 512, Headers: 12, Message: 1000}

// outcome is the result of decoding one message. It is comparable and does not alias
// the input.
type outcome struct {
	err      error
	used     int    // bytes of input that the message consumed
	head     string // start line and headers as decoded
	flags    string
	body     string
	trailers string
}

// feeder acts as the peer and the session: input arrives in pieces, the decoder is
// called again with all bytes of the head, and the memory of the previous call is
// overwritten before.
type feeder struct {
	response bool
	toHead   bool
	eof      bool // the peer closes after the input
	lim      *protocol.Limits
}

// feed decodes the first message of input, cut at the given offsets.
func (f feeder) feed(tb testing.TB, input []byte, cuts []int) (o outcome) {
	var (
		h        Head
		d        Body
		dst      bytebufferpool.ByteBuffer
		held     []byte // bytes of the head so far
		headDone bool
		done     bool
	)
	from := 0
	for _, to := range append(cuts, len(input)) {
		piece := bytes.Clone(input[from:to])
		from = to
		if !headDone {
			moved := append(bytes.Clone(held), piece...)
			for i := range held {
				held[i] = 0xaa
			}
			held = moved
			n, err := f.head(held, &h, &o)
			if n != 0 && err != nil && !errors.Is(err, ErrMessageTooLarge) {
				tb.Fatalf("n = %d with %v", n, err)
			}
			if errors.Is(err, ErrIncomplete) {
				continue
			}
			if o.err = err; err != nil {
				return o
			}
			headDone, o.used = true, n
			d.Reset(&h, f.lim)
			piece = held[n:]
		}
		var n int
		n, done, o.err = d.Decode(piece, &dst)
		if o.err != nil {
			return outcome{err: o.err}
		}
		if o.used += n; done {
			break
		}
		if n != len(piece) {
			tb.Fatalf("Decode left %d of %d bytes and is not done", len(piece)-n, len(piece))
		}
	}
	switch {
	case !headDone:
		o.err = ErrIncomplete
	case f.eof && !done:
		o.err = d.Close()
	case !done:
		o.err = ErrIncomplete
	}
	o.body = string(dst.B[:d.Length()])
	o.trailers = decodedText(d.Trailers(&dst, nil))
	return o
}

func (f feeder) head(b []byte, h *Head, o *outcome) (n int, err error) {
	if f.response {
		var resp protocol.Response
		n, err = DecodeResponse(b, f.toHead, &resp, h, f.lim)
		o.head = strconv.Itoa(resp.Status) + " " + string(resp.Reason) + "|" + decodedText(resp.Headers)
		o.flags = flagText(h)
		if resp.DeclaredLength != -1 {
			o.flags += " declared=" + strconv.FormatInt(resp.DeclaredLength, 10)
		}
	} else {
		var req protocol.Request
		n, err = DecodeRequest(b, &req, h, f.lim)
		o.head = strings.Join([]string{string(req.Method), string(req.Path), string(req.Authority), decodedText(req.Headers)}, "|")
		o.flags = flagText(h)
	}
	if err != nil {
		o.head, o.flags = "", ""
	}
	return n, err
}

// decodedText returns the headerText of headers that were decoded: they must be valid, and say so.
func decodedText(hs []protocol.Header) string {
	for _, h := range hs {
		marked := h.Valid
		h.Valid = false
		if !marked || !mayBeSent(&h) {
			panic(fmt.Sprintf("%q was decoded, and is not valid, or not marked", h))
		}
	}
	return headerText(hs)
}

func headerText(hs []protocol.Header) string {
	var s strings.Builder
	for _, h := range hs {
		s.WriteString(string(h.Name) + "=" + string(h.Value) + ";")
	}
	return s.String()
}

// flagText returns the names of the fields that are set in h, in their order.
func flagText(h *Head) string {
	var s []string
	add := func(ok bool, name string) {
		if ok {
			s = append(s, name)
		}
	}
	add(h.Minor == 0, "1.0")
	add(h.KeepAlive, "keep")
	add(h.ExpectContinue, "expect")
	add(h.HeadMethod, "head")
	add(h.Upgrade, "upgrade")
	add(h.Connect, "connect")
	add(h.Framing == FixedLength, "length="+strconv.FormatInt(h.Length, 10))
	add(h.Framing == Chunked, "chunked")
	add(h.Framing == UntilClose, "close")
	return strings.Join(s, " ")
}

// feedAll feeds input whole, byte by byte and at random splits, and checks that the
// outcome is always the same.
func (f feeder) feedAll(tb testing.TB, input []byte, seed uint64) outcome {
	tb.Helper()
	whole := f.feed(tb, input, nil)
	var each []int
	for i := 1; i < len(input); i++ {
		each = append(each, i)
	}
	check := func(how string, o outcome) {
		tb.Helper()
		if o != whole {
			tb.Fatalf("outcome depends on how the input is split, %s:\ninput %q\nwhole %+v\nsplit %+v", how, input, whole, o)
		}
	}
	check("per byte", f.feed(tb, input, each))
	rng := rand.New(rand.NewPCG(seed, uint64(len(input))))
	for range 8 {
		check("at random", f.feed(tb, input, randomCuts(rng, len(input))))
	}
	return whole
}

func randomCuts(rng *rand.Rand, n int) (cuts []int) {
	for i := 0; i < n; {
		if i += 1 + rng.IntN(1+rng.IntN(24)); i < n {
			cuts = append(cuts, i)
		}
	}
	return cuts
}
