package dubbo

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"testing"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
)

func TestFrameRoundTrip(t *testing.T) {
	for _, f := range []Frame{
		{Request: true, TwoWay: true, Serialization: Hessian2, ID: 1, Body: []byte("x")},
		{Request: true, Serialization: Fastjson, ID: math.MaxInt64, Body: []byte{}}, // one-way
		{Serialization: 31, Status: StatusPoolExhausted, ID: -1, Body: bytes.Repeat([]byte("y"), 1<<20)},
		{Request: true, TwoWay: true, Event: true, Serialization: 0, Status: 255, ID: math.MinInt64, Body: []byte("N")},
	} {
		b := AppendFrame([]byte("before"), &f)[len("before"):]
		behind := append(bytes.Clone(b), "behind"...)
		got, n, err := Decode(behind, len(f.Body))
		if err != nil || n != len(b) || !reflect.DeepEqual(got, f) {
			t.Errorf("got %d of %d bytes, %v", n, len(b), err)
		}
		if cap(got.Body) != len(got.Body) {
			t.Error("an append to the body overwrites the bytes behind it")
		}
	}
}

// TestFrameSplit decodes every prefix of a frame.
func TestFrameSplit(t *testing.T) {
	b := unhexed(t, fastjsonCall)
	for i := range b {
		f, n, err := Decode(b[:i], 1<<20)
		if n != 0 || err != nil || f.Body != nil {
			t.Fatalf("%d bytes: got %d, %v", i, n, err)
		}
		_, length, err := DecodeHeader(b[:i], 1<<20)
		if want := len(b) - HeaderSize; i < HeaderSize && length != -1 || i >= HeaderSize && length != want || err != nil {
			t.Fatalf("%d bytes: length %d, %v", i, length, err)
		}
	}
}

func TestFrameRefused(t *testing.T) {
	const call = "dabbc60000000000000000010000"
	for _, c := range []struct {
		wire string
		want error
	}{
		{"", nil},
		{"da", nil},
		{"47", ErrMagic}, // the G of GET
		{"dabc", ErrMagic},
		{"dabac600000000000000000100000001ff", ErrMagic},
		{call + "0010", nil},
		{call + "0011", ErrFrameTooLarge},
		{"dabbc600000000000000000100010000", ErrFrameTooLarge},
		{"dabbc6000000000000000001ffffffff", ErrFrameTooLarge},
		{"dabbc600000000000000000180000000", ErrFrameTooLarge},
	} {
		_, n, err := Decode(unhexed(t, c.wire), 16)
		if !errors.Is(err, c.want) || n != 0 {
			t.Errorf("%s: got %d, %v, want %v", c.wire, n, err, c.want)
		}
	}
}

// closingHandler closes its reader in one of its calls.
type closingHandler struct {
	r        *FrameReader
	inHeader bool
	calls    int
}

func (h *closingHandler) OnHeader(*Frame, int) bool {
	if h.calls++; h.inHeader {
		h.r.Close()
	}
	return true
}

func (h *closingHandler) OnFrame(_ *Frame, body *bytebufferpool.ByteBuffer) {
	h.r.Buffers.Put(body)
	h.calls++
	h.r.Close()
}

// TestCloseInCallback: a reader that is closed in a call makes no more of them, and keeps no memory.
func TestCloseInCallback(t *testing.T) {
	for _, body := range []string{"", "body"} {
		frame := AppendFrame(nil, &Frame{Serialization: Hessian2, Status: StatusOK, Body: []byte(body)})
		for _, inHeader := range []bool{true, false} {
			for _, cut := range []int{HeaderSize, len(frame), 2 * len(frame)} {
				r := &FrameReader{Buffers: protocol.Unowned()}
				h, want := &closingHandler{r: r, inHeader: inHeader}, 2
				if inHeader || cut == HeaderSize && body != "" {
					want = 1
				}
				input := append(bytes.Clone(frame), frame...)
				if err := r.Feed(input[:cut], h); err != nil || h.calls != want {
					t.Errorf("%q, %d bytes, in the header %t: %d calls, %v", body, cut, inHeader, h.calls, err)
				}
				if inHeader && (r.Held() > 0 || r.Midway()) {
					t.Errorf("%q, %d bytes: %d bytes are held", body, cut, r.Held())
				}
			}
		}
	}
}

func TestHeartbeats(t *testing.T) {
	for _, c := range []struct {
		serialization byte
		want          string
	}{
		{Hessian2, "dabb e2 00 fffffffffffffffe 00000001 4e"},
		{Fastjson, "dabb e6 00 fffffffffffffffe 00000005 6e756c6c0a"},
	} {
		got := AppendHeartbeat([]byte{1}, c.serialization, -2)
		if want := append([]byte{1}, unhexed(t, c.want)...); !bytes.Equal(got, want) {
			t.Errorf("got %x, want %x", got, want)
		}
	}
	for _, c := range []struct{ event, want string }{
		{"dabb e2 00 0000000000000005 00000001 4e", "dabb 22 14 0000000000000005 00000001 4e"},
		{"dabb e6 00 0000000000000005 00000001 4e", "dabb 26 14 0000000000000005 00000005 6e756c6c0a"},
		{"dabb f6 00 0000000000000005 00000002 c001", "dabb 36 14 0000000000000005 00000002 c001"},
	} {
		f := decoded(t, c.event)
		if got := AppendHeartbeatAnswer(nil, &f); !bytes.Equal(got, unhexed(t, c.want)) {
			t.Errorf("%s: got %x", c.event, got)
		}
	}
}

func TestReadOnlyEvent(t *testing.T) {
	for _, c := range []struct {
		wire string
		want bool
	}{
		{"dabb a2 00 0000000000000005 00000002 0152", true},
		{"dabb a6 00 0000000000000005 00000004 2252220a", true},
		{"dabb 82 00 0000000000000005 00000002 0152", false}, // no event
		{"dabb a6 00 0000000000000005 00000002 0152", false}, // not fastjson
		{"dabb a2 00 0000000000000005 00000001 4e", false},
	} {
		if f := decoded(t, c.wire); ReadOnly(&f) != c.want {
			t.Errorf("%s: got %v", c.wire, !c.want)
		}
	}
}

// TestAppendReadOnly: the event that a provider sends before it shuts down is one that callers know, in either serialization.
func TestAppendReadOnly(t *testing.T) {
	for _, serialization := range []byte{Hessian2, Fastjson} {
		b := AppendReadOnly([]byte("before"), serialization)
		f, n, err := Decode(b[len("before"):], 100)
		if err != nil || n != len(b)-len("before") || !ReadOnly(&f) || !f.Request || f.TwoWay || f.Serialization != serialization || f.ID != 0 {
			t.Errorf("serialization %d: %+v, %v", serialization, f, err)
		}
	}
}

func TestStatuses(t *testing.T) {
	for _, c := range []struct {
		status Status
		http   int
		code   string
	}{
		{20, 200, ""},
		{25, 500, "dubbo-serialization-error"},
		{30, 504, "dubbo-client-timeout"},
		{31, 504, "dubbo-server-timeout"},
		{35, 502, "dubbo-channel-inactive"},
		{40, 400, "dubbo-bad-request"},
		{50, 502, "dubbo-bad-response"},
		{60, 404, "dubbo-service-not-found"},
		{70, 500, "dubbo-service-error"},
		{80, 500, "dubbo-server-error"},
		{90, 502, "dubbo-client-error"},
		{100, 503, "dubbo-pool-exhausted"},
		{0, 502, "dubbo-unknown-status"},
		{101, 502, "dubbo-unknown-status"},
	} {
		if c.status.HTTP() != c.http || c.status.Code() != c.code {
			t.Errorf("%d: got %d, %q", c.status, c.status.HTTP(), c.status.Code())
		}
	}
	for http, want := range map[int]Status{
		200: StatusOK, 204: StatusOK, 400: StatusBadRequest, 413: StatusBadRequest, 404: StatusServiceNotFound,
		408: StatusServerTimeout, 504: StatusServerTimeout, 429: StatusPoolExhausted, 503: StatusPoolExhausted,
		199: StatusServerError, 299: StatusOK, 300: StatusServerError, 399: StatusServerError, 499: StatusBadRequest,
		301: StatusServerError, 500: StatusServerError, 502: StatusServerError, 508: StatusServerError,
	} {
		if got := StatusOf(http); got != want {
			t.Errorf("%d: got %d, want %d", http, got, want)
		}
	}
}

func TestAppendFailure(t *testing.T) {
	const want = `no-endpoint: the service "x" has no endpoint`
	for _, c := range []struct{ call, response byte }{{Hessian2, Hessian2}, {Fastjson, Fastjson}, {3, Hessian2}} {
		b := AppendFailure([]byte("before"), c.call, 9, StatusServerError, "no-endpoint", `the service "x" has no endpoint`)
		f, n, err := Decode(b[len("before"):], 1000)
		if err != nil || n != len(b)-len("before") {
			t.Fatalf("%d bytes, %v", n, err)
		}
		message := string(readMessage(&f))
		f.Body = nil
		if !reflect.DeepEqual(f, Frame{Serialization: c.response, Status: StatusServerError, ID: 9}) || message != want {
			t.Errorf("got %+v, %q", f, message)
		}
	}
}

// TestCodecs: each supported serialization has its codec, and no other has one.
func TestCodecs(t *testing.T) {
	for serialization := range byte(32) {
		c, known := CodecOf(serialization)
		if want := serialization == Hessian2 || serialization == Fastjson; known != want || known && SerializationOf(c) != serialization || !known && c != 0 {
			t.Errorf("serialization %d: codec %d, %t", serialization, c, known)
		}
	}
}
