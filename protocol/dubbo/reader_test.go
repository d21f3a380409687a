package dubbo

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
)

// frameLog is a FrameHandler that writes down what it gets. It skips bodies of frames that are no requests.
type frameLog struct {
	got     []string
	reader  *FrameReader
	closeAt string // what closes the reader
}

func (l *frameLog) note(format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	l.got = append(l.got, what)
	if what == l.closeAt {
		l.reader.Close()
	}
}

func (l *frameLog) OnHeader(f *Frame, length int) bool {
	l.note("header %d of %d", f.ID, length)
	return f.Request
}

func (l *frameLog) OnFrame(f *Frame, body *bytebufferpool.ByteBuffer) {
	if body == nil {
		l.note("frame %d", f.ID)
		return
	}
	l.note("frame %d with %d: %.5s", f.ID, len(body.B), body.B)
	l.reader.Buffers.Put(body)
}

func newFrameReader(closeAt string) *frameLog {
	return &frameLog{reader: &FrameReader{Buffers: &protocol.Buffers{}}, closeAt: closeAt}
}

// readerFrames are frames with bodies of several lengths, one of which is skipped.
var readerFrames = []Frame{
	{Request: true, Serialization: Hessian2, ID: 1, Body: []byte("hello")},
	{Serialization: Hessian2, ID: 2, Body: []byte("skipped")},
	{Request: true, Serialization: Hessian2, ID: 3},
	{Serialization: Hessian2, ID: 4},
	{Request: true, Serialization: Hessian2, ID: 5, Body: []byte(strings.Repeat("long ", 10_000))},
	{Request: true, Serialization: Hessian2, ID: 6, Body: []byte("x")},
}

// TestFrameReader: frames are the same however they arrive, and what is held is what has arrived of one.
func TestFrameReader(t *testing.T) {
	var wire []byte
	for i := range readerFrames {
		wire = AppendFrame(wire, &readerFrames[i])
	}
	want := []string{
		"header 1 of 5", "frame 1 with 5: hello", "header 2 of 7", "frame 2", "header 3 of 0", "frame 3 with 0: ", "header 4 of 0", "frame 4",
		"header 5 of 50000", "frame 5 with 50000: long ", "header 6 of 1", "frame 6 with 1: x",
	}
	for _, size := range []int{1, 7, HeaderSize, HeaderSize + 1, 1000, len(wire)} {
		l := newFrameReader("")
		fed, frame := 0, 0 // bytes, all and of the frame that has begun; frames before
		for piece := range slices.Chunk(wire, size) {
			if err := l.reader.Feed(piece, l); err != nil {
				t.Fatalf("by %d: %v", size, err)
			}
			for fed += len(piece); frame < len(readerFrames) && fed >= HeaderSize+len(readerFrames[frame].Body); frame++ {
				fed -= HeaderSize + len(readerFrames[frame].Body)
			}
			if l.reader.Midway() != (fed > 0) || l.reader.InHead() != (fed > 0 && fed < HeaderSize) {
				t.Fatalf("by %d, with %d bytes of frame %d: midway %t, in its head %t", size, fed, frame+1, l.reader.Midway(), l.reader.InHead())
			}
			held := fed
			if frame == 1 {
				held = min(fed, HeaderSize)
			}
			if got := l.reader.Held(); got < held || frame != 4 && got > held {
				t.Fatalf("by %d: %d bytes are held, with %d of frame %d", size, got, fed, frame+1)
			}
		}
		if !slices.Equal(l.got, want) {
			t.Errorf("by %d: %q", size, l.got)
		}
	}
}

// TestFrameReaderClose: nothing follows Close, whenever it is called, and nothing is held.
func TestFrameReaderClose(t *testing.T) {
	var wire []byte
	for i := range readerFrames {
		wire = AppendFrame(wire, &readerFrames[i])
	}
	for _, at := range []string{"header 2 of 7", "frame 2", "frame 3 with 0: ", "frame 5 with 50000: long "} {
		for _, size := range []int{1, len(wire)} {
			l := newFrameReader(at)
			for piece := range slices.Chunk(wire, size) {
				if err := l.reader.Feed(piece, l); err != nil {
					t.Fatalf("%s: %v", at, err)
				}
			}
			if last := l.got[len(l.got)-1]; last != at || l.reader.Held() != 0 || l.reader.Midway() {
				t.Errorf("closed at %q, by %d: the last is %q, %d bytes are held", at, size, last, l.reader.Held())
			}
		}
	}
	l := newFrameReader("")
	long := AppendFrame(nil, &readerFrames[4])
	l.reader.Buffers.Most = 1 << 20
	if err := l.reader.Feed(long[:len(long)-1], l); err != nil {
		t.Fatal(err)
	}
	if l.reader.Close(); l.reader.Buffers.Kept() == 0 {
		t.Error("the buffer of the body is not given back")
	}
	l = newFrameReader("")
	if err := l.reader.Feed(wire[:HeaderSize+3], l); err != nil {
		t.Fatal(err)
	}
	l.reader.Close()
	l.reader.Close()
	if l.reader.Held() != 0 || l.reader.Midway() {
		t.Errorf("%d bytes are held", l.reader.Held())
	}
}

// TestFrameReaderRefuses: a wrong byte is refused at once.
func TestFrameReaderRefuses(t *testing.T) {
	for _, in := range []string{"G", "\xda\xbc", "\xda\xbb" + strings.Repeat("\x00", 10) + "\x80\x00\x00\x00"} {
		l := newFrameReader("")
		var err error
		for piece := range slices.Chunk([]byte(in), 1) {
			if err != nil {
				t.Errorf("%q is refused before its end", in)
			}
			err = l.reader.Feed(piece, l)
		}
		if err == nil || len(l.got) != 0 {
			t.Errorf("%q: %v, %q", in, err, l.got)
		}
	}
	l := newFrameReader("")
	if err := l.reader.Feed(bytes.Repeat([]byte{0xda}, 2), l); err != error(ErrMagic) {
		t.Errorf("%v", err)
	}
}
