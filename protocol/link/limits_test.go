package link

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/dubbo"
)

func TestRequestLimits(t *testing.T) {
	limits := ReaderLimits{Message: 50000, Header: 30000, Headers: 10, Streams: 2}
	get := func(hs ...protocol.Header) *protocol.Request {
		return &protocol.Request{Method: []byte("GET"), Path: []byte("/"), Headers: hs}
	}
	many := make([]protocol.Header, 11)
	for i := range many {
		many[i] = headers(fmt.Sprint("n", i), "v")[0]
	}
	trailers := get()
	trailers.Trailers = many
	// with returns a request with lists of headers and trailers, which others follow in its head.
	with := func(hs, trailers []protocol.Header, hold time.Duration, body int) *protocol.Request {
		return &protocol.Request{Method: []byte("GET"), Path: []byte("/"), Headers: hs, Trailers: trailers, Hold: hold, Body: make([]byte, body)}
	}
	for name, c := range map[string]struct {
		req *protocol.Request
		why Reason // 0 means accepted
	}{
		"body at the limit":    {big(50000), 0},
		"body over":            {big(50001), TooLarge},
		"body far over":        {big(5 << 20), TooLarge},
		"head at the limit":    {get(headers("a", strings.Repeat("v", 30000))...), 0},
		"head over":            {get(headers("a", strings.Repeat("v", 35000))...), TooLarge},
		"headers at the limit": {get(many[:10]...), 0},
		"headers over":         {get(many...), TooLarge},
		"trailers over":        {trailers, TooLarge},

		"line break in value": {get(headers("a", "v\r\nx-evil: 1")...), Malformed},
		"line feed in value":  {get(headers("a", "v\nx-evil: 1")...), Malformed},
		"NUL in value":        {get(headers("a", "1234567890\x00")...), Malformed},
		"colon in name":       {get(headers("a:b", "v")...), Malformed},
		"blank in name":       {get(headers("content-length ", "v")...), Malformed},
		"empty name":          {get(headers("", "v")...), Malformed},
		"blank in path":       {&protocol.Request{Method: []byte("GET"), Path: []byte("/ HTTP/1.1")}, Malformed},
		"blank in method":     {&protocol.Request{Method: []byte("GET /"), Path: []byte("/")}, Malformed},
		"empty path":          {&protocol.Request{Method: []byte("GET")}, Malformed},
		"break in authority":  {&protocol.Request{Method: []byte("GET"), Path: []byte("/"), Authority: []byte("a\nb")}, Malformed},
		"break in service":    {&protocol.Request{Method: []byte("GET"), Path: []byte("/"), Service: []byte("a\nb")}, Malformed},
		"break in attachment": {&protocol.Request{Codec: dubbo.CodecFastjson, Headers: headers("a", "\n")}, Malformed},
		"codec of the future": {&protocol.Request{Codec: 9, Method: []byte("GET"), Path: []byte("/")}, Malformed},

		"headers over, with trailers":      {with(many, many[:1], 0, 0), TooLarge},
		"headers over, with hold":          {with(many, nil, time.Second, 0), TooLarge},
		"headers over, long, trailers":     {with(many, many[:1], 0, 40000), TooLarge},
		"headers and trailers over":        {with(many, many, time.Second, 0), TooLarge},
		"trailers over, with hold":         {with(nil, many, time.Second, 0), TooLarge},
		"line break, then headers over":    {with(append(headers("a", "\n"), many[:9]...), many, 0, 0), Malformed},
		"line break, then trailers over":   {with(headers("a", "\n"), many, time.Second, 0), Malformed},
		"text over, then a malformed name": {with(headers("a", strings.Repeat("v", 33000), strings.Repeat("b", 2000)+":", ""), nil, 0, 0), TooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			d, a := newLink(t, Settings{}, limits)
			for id := range uint64(4) { // interned or not
				d.w.Request(id+1, c.req, 0, nil)
				exchange(t, d, a)
				if got := a.h.rejected[id+1]; got != c.why {
					t.Errorf("request %d: rejected as %q, want %q", id+1, got, c.why)
				}
				if arrived := a.h.requests[id+1] != nil; arrived != (c.why == 0) {
					t.Errorf("request %d: arrived %t", id+1, arrived)
				}
			}
			d.w.Request(5, typical(1), 0, nil)
			exchange(t, d, a)
			if a.h.requests[5] == nil || a.r.Buffered() != 0 {
				t.Error("the link accepts no request afterwards")
			}
		})
	}
}

func TestResponseLimits(t *testing.T) {
	d, a := newLink(t, Settings{}, ReaderLimits{Message: 1000})
	a.w.Response(1, &protocol.Response{Status: 200, Body: make([]byte, 1<<20)}, 0, nil)
	a.w.Response(2, &protocol.Response{Status: 200, Reason: []byte("a\r\nb")}, 0, nil)
	for id, status := range []int{-1, 0, 199, 600} {
		a.w.Response(uint64(id+3), &protocol.Response{Status: status}, 0, nil)
	}
	exchange(t, d, a)
	if d.h.rejected[1] != TooLarge || d.h.rejected[2] != Malformed || len(d.h.rejected) != 6 || len(d.h.responses) != 0 {
		t.Errorf("got %q", d.h.events)
	}
}

// TestResponseRejected: after a response that is rejected, whatever follows in its head, the next one arrives.
func TestResponseRejected(t *testing.T) {
	many := slices.Repeat(headers("n1", "v"), 11)
	some := headers("x-sum", "1")
	for name, c := range map[string]struct {
		resp protocol.Response
		why  Reason
	}{
		"headers over":                   {protocol.Response{Status: 200, Headers: many}, TooLarge},
		"headers over, with trailers":    {protocol.Response{Status: 200, Headers: many, Trailers: some}, TooLarge},
		"headers over, long, trailers":   {protocol.Response{Status: 200, Headers: many, Trailers: some, Body: make([]byte, 20000)}, TooLarge},
		"headers and trailers over":      {protocol.Response{Status: 200, Headers: many, Trailers: many}, TooLarge},
		"trailers over":                  {protocol.Response{Status: 200, Trailers: many}, TooLarge},
		"status, then headers":           {protocol.Response{Status: 199, Headers: many, Trailers: some}, Malformed},
		"line break, then headers over":  {protocol.Response{Status: 200, Reason: []byte("a\nb"), Headers: many, Trailers: some}, Malformed},
		"token of a status without body": {protocol.Response{Status: 204, StreamToken: vectorToken[:], Headers: many}, Malformed},
	} {
		t.Run(name, func(t *testing.T) {
			c.resp.DeclaredLength = -1
			w, h := NewWriter(), newRecorder()
			r := NewDialer(Settings{Features: FeatureStreams}, ReaderLimits{Headers: 10}, h)
			w.Preface(Acceptor, Settings{})
			w.Open(1, Settings{Features: FeatureStreams})
			for id := range uint64(4) { // interned or not
				w.Response(id+1, &c.resp, 0, nil)
			}
			w.Response(5, typicalResponse(), 0, nil)
			if err := r.Feed(w.Append(nil, 1<<20)); err != nil {
				t.Fatal(err)
			}
			for id := range uint64(4) {
				if got := h.rejected[id+1]; got != c.why || h.responses[id+1] != nil {
					t.Errorf("response %d: rejected as %q, want %q", id+1, got, c.why)
				}
			}
			if h.responses[5] == nil || r.Buffered() != 0 {
				t.Error("the link takes no response afterwards")
			}
		})
	}
}

func TestReassemblyLimit(t *testing.T) {
	d, a := newLink(t, Settings{}, ReaderLimits{Streams: 3})
	for id := range uint64(5) {
		d.w.Request(id+1, big(100<<10), 0, nil)
	}
	exchange(t, d, a)
	if len(a.h.requests) != 3 || a.h.rejected[4] != Overload || a.h.rejected[5] != Overload {
		t.Errorf("%d arrived, rejected %v", len(a.h.requests), a.h.rejected)
	}
}

// The announced length of a message reserves no memory.
func TestReassemblyMemory(t *testing.T) {
	d, a := newLink(t, Settings{}, ReaderLimits{Message: 1 << 30})
	d.w.Request(1, big(64<<20), 0, nil)
	for range 200 {
		feed(t, a, d.w.Append(nil, 0))
		d.w.Granted(a.r.TakeConsumed())
		s := a.r.assembly.messages[1]
		if s == nil {
			t.Fatal("not in reassembly")
		}
		if have := len(s.buf.B); have > 1<<20 && cap(s.buf.B) > 2*have+MaxFrame {
			t.Fatalf("%d bytes are reserved for %d", cap(s.buf.B), have)
		}
	}
	if a.r.Buffered() < 1<<20 {
		t.Fatalf("only %d bytes arrived", a.r.Buffered())
	}
	a.r.Forget(1)
	if a.r.Buffered() != 0 {
		t.Error("Forget keeps bytes")
	}
	for d.w.Ready() {
		feed(t, a, d.w.Append(nil, 64<<10))
		d.w.Granted(a.r.TakeConsumed()) // skipped bytes count, or the link would stall
	}
	if d.w.Queued() != 0 || len(a.h.requests) != 0 {
		t.Error("the rest of a forgotten message was not skipped")
	}
}

// References in a head expand to no more text than a literal head may have.
func TestReferenceExpansionLimit(t *testing.T) {
	_, a := newLink(t, Settings{}, ReaderLimits{Header: 10000})
	var b []byte
	text := bytes.Repeat([]byte("x"), 8000)
	b = append(appendHeader(b, uint8(frameDefine), 0, len(text)), text...)
	head := []byte{0, 0, 0, 0, 0, 6, 'G', 'E', 'T', 2, '/', 0, 10}
	head = append(head, bytes.Repeat([]byte{1}, 20)...)
	b = append(appendHeader(b, uint8(frameRequest), 1, 1+len(head)), byte(len(head)))
	feed(t, a, append(b, head...))
	if a.h.rejected[1] != TooLarge {
		t.Errorf("got %q", a.h.events)
	}
}

func TestMalformedInput(t *testing.T) {
	frame := func(typ uint8, id uint64, payload ...byte) []byte {
		return append(appendHeader(nil, typ, id, len(payload)), payload...)
	}
	const more = flagMore
	ok := []byte{9, 0, 0, 0, 0, 0, 2, 'G', 2, '/', 0, 0}
	ok[0] = byte(len(ok) - 1)
	trace := append([]byte{0x81, 2}, make([]byte, 25)...)
	twoTraces := append([]byte{11 + 2*27, 0, headTrace, 0, 0, 0, 2, 'G', 2, '/', 0, 2}, append(trace, trace...)...)
	for name, c := range map[string]struct {
		b    []byte
		want error
	}{
		"type 0":                {frame(0, 0), ErrFrameType},
		"type 15":               {frame(15, 0, 1, 2), ErrFrameType},
		"long frame":            {[]byte{1, 1, 0x81, 0x80, 1}, ErrFrameSize},
		"long varint":           {bytes.Repeat([]byte{0xff}, 14), ErrVarint},
		"padded varint":         {[]byte{1, 0x81, 0, 0}, ErrVarint},
		"response to acceptor":  {frame(2, 1, ok...), ErrRole},
		"ack to acceptor":       {frame(6, 1, 1), ErrRole},
		"refused to acceptor":   {frame(7, 1, 1), ErrRole},
		"id 0":                  {frame(1, 0, ok...), ErrStreamID},
		"cancel of 0":           {frame(5, 0), ErrStreamID},
		"same id twice":         {append(frame(1, 5, ok...), frame(1, 5, ok...)...), ErrStreamID},
		"id goes back":          {append(frame(1, 5, ok...), frame(1, 4, ok...)...), ErrStreamID},
		"empty request":         {frame(1, 1), ErrHead},
		"head past the end":     {frame(1, 1, 5, 1), ErrHead},
		"cut head":              {frame(1, 1, 3, 0, 0, 0), ErrHead},
		"literal past the head": {frame(1, 1, 6, 0, 0, 0, 0, 0, 40), ErrHead},
		"headers past the head": {frame(1, 1, 10, 0, 0, 0, 0, 0, 2, 'G', 2, '/', 0, 99), ErrHead},
		"trace without flag":    {frame(1, 1, append([]byte{38, 0, 0, 0, 0, 0, 2, 'G', 2, '/', 0, 1, 0x81, 2}, make([]byte, 25)...)...), ErrHead},
		"two traces":            {frame(1, 1, twoTraces...), ErrHead},
		"index":                 {frame(1, 1, 5, 0, 0, 0, 0, 1), ErrIndex},
		"more, all there":       {frame(1|more, 1, 3, 1, 0, 0), ErrHead},
		"more, no length":       {frame(1|more, 1, 0x80), ErrHead},
		"more, empty":           {frame(1|more, 1), ErrHead},
		"more, too many":        {frame(1, 1, 10, 0, 0, 0, 0, 0, 2, 'G', 2, '/', 0, 1), ErrHead},
		"more, no head":         {frame(1|more, 1, 3), ErrHead},
		"more, head too long":   {frame(1|more, 1, 3, 3), ErrHead},
		"overrun":               {append(frame(1|more, 1, 4, 1), frame(3, 1, 1, 2, 3, 4)...), ErrOverrun},
		"empty DATA":            {frame(3, 1), ErrPayload},
		"DATA of 0":             {frame(3, 0, 1), ErrStreamID},
		"ABORT of 0":            {frame(3|more, 0), ErrStreamID},
		"ABORT with payload":    {frame(3|more, 1, 1), ErrPayload},
		"ABORT ends a message":  {append(frame(1|more, 1, 20, 11, 0, 0, 0, 0, 0, 2, 'G'), frame(3|more, 1, 2, '/', 0, 0, 1, 2, 3, 4, 5, 6, 7, 8)...), ErrPayload},
		"credit 0":              {frame(4, 0, 0), ErrPayload},
		"credit too large":      {frame(4, 0, 0xff, 0xff, 0xff, 0xff, 0x7f), ErrPayload},
		"credit of 2^32":        {frame(4, 0, 0x80, 0x80, 0x80, 0x80, 0x10), ErrPayload},
		"no credit":             {frame(4, 0), ErrPayload},
		"no goaway reason":      {frame(10, 0), ErrPayload},
		"short load":            {frame(12, 0, 1, 2, 3), ErrPayload},
		"define out of order":   {frame(11, 1, 'a'), ErrDefine},
		"define twice":          {append(frame(11, 0, 'a'), frame(11, 0, 'a')...), ErrDefine},
		"define empty":          {frame(11, 0), ErrDefine},
		"define line break":     {frame(11, 0, 'a', '\r'), ErrDefine},
		"define too much":       {append(frame(11, 0, bytes.Repeat([]byte{'a'}, 8192)...), frame(11, 1, 'b')...), ErrDefine},
	} {
		t.Run(name, func(t *testing.T) {
			splits(t, c.b, func(t *testing.T, parts [][]byte) {
				_, a := newLink(t, Settings{}, ReaderLimits{})
				var err error
				for _, p := range parts {
					err = a.r.Feed(p)
				}
				if !errors.Is(err, c.want) {
					t.Errorf("got %v, want %v", err, c.want)
				}
				if err := a.r.Feed(frame(8, 1)); !errors.Is(err, c.want) {
					t.Errorf("afterwards: %v", err)
				}
				a.r.Close()
				if a.r.Buffered() != 0 {
					t.Error("bytes are held after Close")
				}
			})
		})
	}
}

func TestFlowControlViolation(t *testing.T) {
	_, a := newLink(t, Settings{Window: 20000}, ReaderLimits{})
	data := append(appendHeader(nil, uint8(frameData), 1, 10000), make([]byte, 10000)...)
	for range 5 { // DATA of an unknown message is skipped, but counts
		feed(t, a, data)
		feed(t, a, data)
		if n := a.r.TakeConsumed(); n != 20000 {
			t.Fatalf("%d bytes consumed", n)
		}
	}
	feed(t, a, data)
	feed(t, a, data)
	if err := a.r.Feed(data); err != ErrFlowControl {
		t.Errorf("got %v", err)
	}
}

func TestUnknownFrames(t *testing.T) {
	b := append(appendHeader(nil, 0xf5, 77, 1000), make([]byte, 1000)...)
	b = append(b, 0xff, 1, 0)
	b = append(b, uint8(framePing)|0xe0, 5, 2, 1, 2) // unknown flags, longer payload
	splits(t, b, func(t *testing.T, parts [][]byte) {
		_, a := newLink(t, Settings{}, ReaderLimits{})
		for _, p := range parts {
			feed(t, a, p)
		}
		if len(a.h.events) != 1 || a.h.events[0] != "ping 5" || a.r.TakeConsumed() != 0 {
			t.Errorf("got %q", a.h.events)
		}
	})
}

// CANCEL, CANCEL_ACK and REFUSED end the reassembly of their message. Until then it counts as buffered, and so does a part of a frame.
func TestReassemblyEnd(t *testing.T) {
	for typ, role := range map[frameType]Role{frameCancel: Acceptor, frameCancelAck: Dialer, frameRefused: Dialer} {
		start := uint8(frameRequest)
		if role == Dialer {
			start = uint8(frameResponse)
		}
		d, a := newLink(t, Settings{}, ReaderLimits{})
		e := map[Role]*side{Dialer: d, Acceptor: a}[role]
		feed(t, e, append(appendHeader(nil, start|flagMore, 1, 4), 40, 2, 0, 0))
		if e.r.Buffered() != 3 {
			t.Fatalf("%d bytes buffered", e.r.Buffered())
		}
		end := append(appendHeader(nil, uint8(typ), 1, 1), 1)
		last := len(end) - 1
		if feed(t, e, end[:last]); e.r.Buffered() != 3+last {
			t.Errorf("%d bytes buffered with %d of the next frame", e.r.Buffered(), last)
		}
		feed(t, e, end[last:])
		if e.r.Buffered() != 0 || len(e.h.events) != 1 {
			t.Errorf("frame type %d: %d bytes buffered, events %q", typ, e.r.Buffered(), e.h.events)
		}
	}
}
