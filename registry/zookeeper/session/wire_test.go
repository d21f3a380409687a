package session

import (
	"bytes"
	"encoding/binary"
	"io"
	"math"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"
)

// wire returns values as the protocol has them: an int32, an int64, a bool, a text after its length, or bytes as they are.
func wire(values ...any) (b []byte) {
	for _, v := range values {
		switch v := v.(type) {
		case int:
			b = binary.BigEndian.AppendUint32(b, uint32(v))
		case int64:
			b = binary.BigEndian.AppendUint64(b, uint64(v))
		case bool:
			if v {
				b = append(b, 1)
			} else {
				b = append(b, 0)
			}
		case string:
			b = append(binary.BigEndian.AppendUint32(b, uint32(len(v))), v...)
		case []byte:
			b = append(b, v...)
		}
	}
	return b
}

// response returns a response to a request, or an event, as a message.
func response(xid int, zxid int64, code Code, values ...any) []byte {
	return frame(wire(xid, zxid, int(code), wire(values...))...)
}

// readFrame reads a message that frame has made.
func readFrame(from io.Reader) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(from, size[:]); err != nil {
		return nil, err
	}
	b := make([]byte, binary.BigEndian.Uint32(size[:]))
	_, err := io.ReadFull(from, b)
	return b, err
}

// piped returns a connection, and its other end.
func piped(t *testing.T) (c *conn, server net.Conn) {
	t.Helper()
	client, server := net.Pipe()
	t.Cleanup(func() { client.Close(); server.Close() })
	return &conn{net: client, silence: timeout}, server
}

// TestRequestBytes: each request as it is on the wire.
func TestRequestBytes(t *testing.T) {
	acl := func(scheme, id string) []byte { return wire(1, 31, scheme, id) }
	everyone := acl("world", "anyone")
	for name, c := range map[string]struct {
		user string
		do   func(s *Session)
		want []byte // after its number
	}{
		"children":           {"", func(s *Session) { s.Children(ctx(t), "/a", true) }, wire(8, "/a", true)},
		"data without watch": {"", func(s *Session) { s.Get(ctx(t), "/a", false) }, wire(4, "/a", false)},
		"exists":             {"", func(s *Session) { s.Exists(ctx(t), "/a", true) }, wire(3, "/a", true)},
		"set":                {"", func(s *Session) { s.Set(ctx(t), "/a", []byte("x")) }, wire(5, "/a", "x", -1)},
		"delete":             {"", func(s *Session) { s.Delete(ctx(t), "/a", 7) }, wire(2, "/a", 7)},
		"create":             {"", func(s *Session) { s.Create(ctx(t), "/a", []byte("x"), false) }, wire(1, "/a", "x", everyone, 0)},
		"create for a while": {"", func(s *Session) { s.Create(ctx(t), "/a", nil, true) }, wire(1, "/a", "", everyone, 1)},
		"create as somebody": {"me", func(s *Session) { s.Create(ctx(t), "/a", nil, true) }, wire(1, "/a", "", acl("auth", ""), 1)},
		"replace": {"", func(s *Session) { s.Replace(ctx(t), "/a", 7, []byte("x")) }, wire(
			14, 2, false, -1, "/a", 7, 1, false, -1, "/a", "x", everyone, 1, -1, true, -1)},
	} {
		t.Run(name, func(t *testing.T) {
			c0, server := piped(t)
			s := &Session{opt: Options{Username: c.user}, conn: c0}
			done := make(chan struct{})
			go func() {
				defer close(done)
				c.do(s)
			}()
			if got, err := readFrame(server); err != nil || !bytes.Equal(got, wire(1, c.want)) {
				t.Errorf("%v, %v\nwant %v", got, err, wire(1, c.want))
			}
			server.Close()
			_ = c0.read(incoming{heard: func(int64) {}})
			await(t, "the end of the request", done)
		})
	}
}

// TestRequestNumbers: requests are numbered from 1, and again after the last number. Responses in another order are refused.
func TestRequestNumbers(t *testing.T) {
	c, server := piped(t)
	for _, want := range []int{1, 2, 1} {
		go func() { _ = c.send(opPing, nil, &call{done: make(chan reply, 1)}) }()
		if got, err := readFrame(server); err != nil || !bytes.Equal(got, wire(want, opPing)) {
			t.Fatalf("%v, %v, want number %d", got, err, want)
		}
		c.mu.Lock() // send has ended
		if want == 2 {
			c.xid = math.MaxInt32
		}
		c.mu.Unlock()
	}
	if err := c.answer(message{xid: 2}); err != ErrFormat {
		t.Errorf("another order: %v", err)
	}
	if err := c.answer(message{xid: 1}); err != nil {
		t.Errorf("the first: %v", err)
	}
}

// unwritable is a connection that can't be written.
type unwritable struct{ net.Conn }

func (unwritable) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

// TestRequestNotSent: a request that can't be written ends the connection, and so fails.
func TestRequestNotSent(t *testing.T) {
	c, server := piped(t)
	c.net = unwritable{c.net}
	result := make(chan error, 1)
	go func() {
		_, err := c.do(ctx(t), opPing, nil)
		result <- err
	}()
	if n, err := io.Copy(io.Discard, server); n > 0 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	_ = c.read(incoming{})
	if err := await(t, "the result", result); err != ErrLost {
		t.Error(err)
	}
}

// TestResponseBytes: what is made of the bytes of responses, and of those that lack the last byte.
func TestResponseBytes(t *testing.T) {
	stat := wire(int64(1), int64(2), int64(3), int64(4), 5, 6, 7, int64(8), 9, 10, int64(11))
	for name, c := range map[string]struct {
		body []byte
		read func(*decoder) any
		want any
	}{
		"a number":        {wire(1 << 30), func(d *decoder) any { return d.int32() }, int32(1 << 30)},
		"a long number":   {wire(int64(1 << 60)), func(d *decoder) any { return d.int64() }, int64(1 << 60)},
		"true":            {wire(true), func(d *decoder) any { return d.bool() }, true},
		"false":           {wire(false), func(d *decoder) any { return d.bool() }, false},
		"a text":          {wire("ab"), func(d *decoder) any { return d.text() }, "ab"},
		"no text":         {wire(-1), func(d *decoder) any { return d.text() }, ""},
		"a list":          {wire(2, "a", "bc"), func(d *decoder) any { return strings.Join(d.texts(), ",") }, "a,bc"},
		"empty texts":     {wire(2, "", ""), func(d *decoder) any { return strings.Join(d.texts(), ",") }, ","},
		"a Stat":          {stat, func(d *decoder) any { return d.stat() }, Stat{Version: 5, Owner: 8}},
		"a Stat and more": {append(stat, wire("a")...), func(d *decoder) any { d.stat(); return d.text() }, "a"},
	} {
		d := decoder{b: c.body}
		if got := c.read(&d); got != c.want || d.err != nil || len(d.b) > 0 {
			t.Errorf("%s: %v, %v, want %v; %d bytes are left", name, got, d.err, c.want, len(d.b))
		}
		d = decoder{b: c.body[:len(c.body)-1]}
		if c.read(&d); d.err != ErrFormat {
			t.Errorf("%s without its last byte: %v", name, d.err)
		}
	}
}

// TestDecoderStops: after a value that is not there all values are zero. A length below 0 is no length, but for -1.
func TestDecoderStops(t *testing.T) {
	d := decoder{b: wire(1)}
	if long, short := d.int64(), d.int32(); long != 0 || short != 0 || d.err != ErrFormat {
		t.Errorf("%d, %d, %v", long, short, d.err)
	}
	d = decoder{b: wire(-2, 7)}
	if b, next := d.bytes(), d.int32(); b != nil || next != 0 || d.err != ErrFormat {
		t.Errorf("%v, %d, %v", b, next, d.err)
	}
}

// TestReplaceFails: the error of a replacement is that of the operation that made the other one fail.
func TestReplaceFails(t *testing.T) {
	failure := func(code Code) []byte { return wire(-1, false, int(code), int(code)) }
	end := wire(-1, true, -1)
	for name, c := range map[string]struct {
		body []byte
		want error
	}{
		"none":            {wire(2, false, 0, 1, false, 0, "/a", end), nil},
		"the deletion":    {wire(failure(BadVersion), failure(otherFailed), end), BadVersion},
		"the creation":    {wire(failure(0), failure(NoAuth), end), NoAuth},
		"no end":          {wire(2, false, 0), ErrFormat},
		"no end at last":  {wire(2, false, 0, 1, false, 0, "/long"), ErrFormat},
		"half a failure":  {wire(-1, false, int(NoNode)), ErrFormat},
		"another failure": {wire(failure(otherFailed), failure(NodeExists), end), NodeExists},
	} {
		c0, server := piped(t)
		s := &Session{conn: c0}
		result := make(chan error, 1)
		go func() { result <- s.Replace(ctx(t), "/a", 0, nil) }()
		go func() { _ = c0.read(incoming{heard: func(int64) {}}) }()
		if _, err := readFrame(server); err != nil {
			t.Fatal(err)
		}
		if _, err := server.Write(response(1, 1, 0, c.body)); err != nil {
			t.Fatal(err)
		}
		if err := await(t, "the result", result); err != c.want {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// TestMessageBounds: a message beyond one bound is skipped, and one beyond the other is none.
func TestMessageBounds(t *testing.T) {
	for _, c := range []struct {
		size    int64 // of the body
		isLarge bool
		err     error // if nothing follows the header
	}{
		{0, false, nil}, {maxMessage, false, io.EOF}, {maxMessage + 1, true, io.EOF}, {maxSkipped, true, io.EOF}, {maxSkipped + 1, false, ErrFormat}, {-1, false, ErrFormat},
	} {
		head := wire(int(headerSize+c.size), 7, int64(8), int(NoNode))
		if _, err := readMessage(bytes.NewReader(head)); err != c.err {
			t.Errorf("%d bytes, of which none comes: %v, want %v", c.size, err, c.err)
		}
		if c.err == ErrFormat || c.size > 2*maxMessage {
			continue
		}
		m, err := readMessage(io.MultiReader(bytes.NewReader(head), neverEnding{}))
		if err != nil || m.xid != 7 || m.zxid != 8 || m.code != NoNode || m.isLarge != c.isLarge || !c.isLarge && int64(len(m.body)) != c.size {
			t.Errorf("%d bytes: %d, large %t, %v", c.size, len(m.body), m.isLarge, err)
		}
	}
}

// neverEnding is a reader of zeros.
type neverEnding struct{}

func (neverEnding) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// TestMemory: what a server only announces takes no memory.
func TestMemory(t *testing.T) {
	for name, read := range map[string]func(){
		"a message": func() { _, _ = readMessage(bytes.NewReader(wire(headerSize+maxMessage, 1, int64(1), 0))) },
		"a list":    func() { (&decoder{b: wire(2<<20, make([]byte, 1<<20))}).texts() },
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		read()
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 8<<20 {
			t.Errorf("%s has taken %d bytes", name, n)
		}
	}
}

// measured is a reader that refuses to fill more memory at a time than it has filled before, beyond the first part.
type measured struct{ filled int }

func (m *measured) Read(b []byte) (int, error) {
	if len(b) > max(m.filled, firstPart) {
		return 0, io.ErrShortBuffer
	}
	m.filled += len(b)
	return len(b), nil
}

// TestMemoryGrows: memory for a message at most doubles as its bytes arrive.
func TestMemoryGrows(t *testing.T) {
	for _, size := range []int{0, 1, firstPart, firstPart + 1, 10 * firstPart} {
		if b, err := readBody(new(measured), size); err != nil || len(b) != size {
			t.Errorf("%d of %d bytes, %v", len(b), size, err)
		}
	}
}

// TestGreeting: what a client says first, and which answers of a server it accepts.
func TestGreeting(t *testing.T) {
	const id, zxid = 1 << 40, 1 << 41
	password := []byte("0123456789abcdef")
	answer := func(timeout int, extra int) []byte {
		return frame(wire(0, timeout, int64(id), string(password), make([]byte, extra))...)
	}
	plain := len(answer(0, 0)) - 4
	for name, c := range map[string]struct {
		answer []byte
		want   time.Duration
		err    error
	}{
		"a session":          {answer(4000, 1), 4 * time.Second, nil},
		"no session":         {answer(0, 1), 0, nil},
		"a time below 0":     {answer(-1, 1), 0, nil},
		"as long as it may":  {answer(4000, maxHandshake-plain), 4 * time.Second, nil},
		"longer":             {answer(4000, maxHandshake-plain+1), 0, ErrFormat},
		"an end":             {nil, 0, ErrRefused},
		"a part of a length": {[]byte{0, 0}, 0, io.ErrUnexpectedEOF},
		"no password":        {frame(wire(0, 4000, int64(id))...), 0, ErrFormat},
	} {
		t.Run(name, func(t *testing.T) {
			client, server := net.Pipe()
			defer client.Close()
			said := make(chan []byte, 1)
			go func() {
				b, _ := readFrame(server)
				said <- b
				_, _ = server.Write(c.answer)
				server.Close()
			}()
			g, err := greet(client, zxid, 5*time.Second, id, password)
			if err != c.err || err == nil && (g.timeout != c.want || g.id != id || !bytes.Equal(g.password, password)) {
				t.Errorf("%+v, %v", g, err)
			}
			if got, want := await(t, "the greeting", said), wire(0, int64(zxid), 5000, int64(id), string(password), false); !bytes.Equal(got, want) {
				t.Errorf("said %v, want %v", got, want)
			}
		})
	}
}
