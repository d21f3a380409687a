package protocol

import (
	"reflect"
	"testing"

	"github.com/valyala/bytebufferpool"
)

// TestCopyTo: a copy is equal and has memory of its own. Of the fields of a Request it lacks those
// that belong to one attempt.
func TestCopyTo(t *testing.T) {
	text := func(s string) []byte { return []byte(s) }
	from := Request{
		Codec: CodecHTTP, Service: text("s"), Method: text("POST"), Path: text("/a?b"), Authority: text("host:1"),
		Headers:  []Header{{Name: text("A"), Value: text("1")}, {Name: text("B"), Value: text(""), NeverIndexed: true}},
		Trailers: []Header{{Name: text("T"), Value: text("2")}}, Body: text("body"), Version: text("v"), Group: text("g"),
		Deadline: 1, Hold: 1, Timed: true, Attempt: 1, Hedge: true, Tied: true, Idempotent: true, OneWay: true, Batch: true, Alone: true, Login: true, NeverIndexed: true,
	}
	v := reflect.ValueOf(from)
	for i := range v.NumField() {
		if f := v.Type().Field(i); v.Field(i).IsZero() && f.Name != "Codec" {
			t.Errorf("the test lacks a value of %s", f.Name)
		}
	}
	want := from
	want.Service, want.Deadline, want.Hold, want.Attempt, want.Hedge, want.Tied, want.Idempotent, want.Alone = nil, 0, 0, 0, false, false, false, false
	var got Request
	b := &bytebufferpool.ByteBuffer{B: make([]byte, 0, from.Size())}
	memory := b.B[:cap(b.B)]
	from.CopyTo(&got, b)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if len(b.B) != from.Size() || &memory[0] != &b.B[0] {
		t.Errorf("%d bytes, want %d, at the same place", len(b.B), from.Size())
	}
	var none, copied Request
	if none.CopyTo(&copied, &bytebufferpool.ByteBuffer{}); copied.Body != nil || copied.Path != nil || len(copied.Headers) != 0 {
		t.Errorf("what is nil becomes %+v", copied)
	}
	clear(memory)
	if string(got.Body) != "\x00\x00\x00\x00" || string(from.Body) != "body" {
		t.Errorf("the copy has memory of another: %q and %q", got.Body, from.Body)
	}
}
