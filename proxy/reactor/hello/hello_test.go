package hello

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/internal/must"
)

// capture returns the first flight of a client of package tls.
func capture(t testing.TB) []byte {
	t.Helper()
	client, server := net.Pipe()
	defer server.Close()
	go func() {
		_ = tls.Client(client, &tls.Config{ServerName: "server.test"}).Handshake()
		client.Close()
	}()
	head := must.Read(t, server, recordHeader)
	body := must.Read(t, server, int(binary.BigEndian.Uint16(head[3:])))
	return append(head, body...)
}

// record returns a record with the fragment.
func record(kind byte, fragment []byte) []byte {
	return append(binary.BigEndian.AppendUint16([]byte{kind, 3, 1}, uint16(len(fragment))), fragment...)
}

// inRecords returns the message in records of size bytes.
func inRecords(message []byte, size int) (all []byte) {
	for len(message) > 0 {
		n := min(size, len(message))
		all = append(all, record(recordHandshake, message[:n])...)
		message = message[n:]
	}
	return all
}

// message returns a ClientHello of n bytes, its header not counted.
func message(n int) []byte {
	return append([]byte{typeClientHello, byte(n >> 16), byte(n >> 8), byte(n)}, make([]byte, n)...)
}

// feed returns the result for b whole, and checks that it is the same byte by byte, and that
// no prefix has it before.
func feed(t testing.TB, b []byte) (bool, error) {
	t.Helper()
	var once, bytewise Reader
	whole, err := once.Feed(b)
	w, e := false, error(nil)
	for i := range b {
		if w || e != nil {
			break
		}
		w, e = bytewise.Feed(b[i : i+1])
	}
	if len(b) <= MaxSize && (w != whole || !same(e, err)) {
		t.Errorf("byte by byte %t, %v; whole %t, %v", w, e, whole, err)
	}
	if again, e := once.Feed([]byte("x")); again != whole && (whole || err != nil) || err != nil && !same(e, err) {
		t.Errorf("then %t, %v; before %t, %v", again, e, whole, err)
	}
	return whole, err
}

func same(a, b error) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Error() == b.Error()
}

func TestReader(t *testing.T) {
	real := capture(t)
	for _, c := range []struct {
		name  string
		input []byte
		whole bool
		want  string // part of the error
		alert byte
	}{
		{"a client's", real, true, "", 0},
		{"in records of one byte", inRecords(real[recordHeader:], 1), true, "", 0},
		{"in records of 100 bytes", inRecords(real[recordHeader:], 100), true, "", 0},
		{"all but the last byte", real[:len(real)-1], false, "", 0},
		{"all but the last record", inRecords(message(4), 4)[:recordHeader+4], false, "", 0},
		{"the largest", inRecords(message(MaxSize-headerSize-recordHeader), maxFragment), true, "", 0},
		{"one byte too large", inRecords(message(MaxSize-headerSize-recordHeader+1), maxFragment), false, "more than 16384 bytes", alertRecordOverflow},
		{"said to be too large", record(recordHandshake, []byte{typeClientHello, 0, 0x40, 1}), false, "a ClientHello of 16385 bytes", alertDecodeError},
		{"said to be large", record(recordHandshake, []byte{typeClientHello, 0, 0x40, 0}), false, "", 0},
		{"with more behind it", append(bytes.Clone(real), make([]byte, MaxSize)...), false, "more than 16384 bytes", alertRecordOverflow},
		{"nothing", nil, false, "", 0},
		{"HTTP", []byte("GET / HTTP/1.1\r\n\r\n"), false, ErrNotTLS.Error(), 0},
		{"a byte of a link", []byte("\x8d"), false, ErrNotTLS.Error(), 0},
		{"SSL 2", []byte{0x80, 0x2e, 1, 3, 1}, false, ErrNotTLS.Error(), 0},
		{"text after the first byte", []byte("\x16GET"), false, ErrNotTLS.Error(), 0},
		{"a version", []byte{recordHandshake, maxVersion - 1}, false, "", 0},
		{"no version", []byte{recordHandshake, maxVersion}, false, ErrNotTLS.Error(), 0},
		{"an alert", Alert(40), false, ErrNotTLS.Error(), 0},
		{"another message", record(recordHandshake, []byte{2, 0, 0, 1, 0}), false, "no ClientHello", alertUnexpectedMessage},
		{"an empty record", record(recordHandshake, nil), false, "0 bytes", alertUnexpectedMessage},
		{"a long record", []byte{recordHandshake, 3, 1, 0x40, 1}, false, "a record of 16385 bytes", alertRecordOverflow},
		{"the longest record", []byte{recordHandshake, 3, 1, 0x40, 0}, false, "", 0},
		{"another record within", append(record(recordHandshake, real[recordHeader:50]), Alert(0)...), false, "another record", alertUnexpectedMessage},
		{"another record after a byte", append(record(recordHandshake, []byte{typeClientHello}), Alert(0)...), false, "another record", alertUnexpectedMessage},
		{"two messages in a record", record(recordHandshake, append(message(2), 1)), false, "behind", alertUnexpectedMessage},
	} {
		t.Run(c.name, func(t *testing.T) {
			whole, err := feed(t, c.input)
			if whole != c.whole || (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Fatalf("%t, %v; want %t and %q", whole, err, c.whole, c.want)
			}
			var bad *Error
			if errors.As(err, &bad) && bad.Alert != c.alert {
				t.Errorf("alert %d, want %d", bad.Alert, c.alert)
			}
		})
	}
}

// TestAlert: an alert is a record of two bytes, and fatal (RFC 5246, sections 6.2.1 and 7.2).
func TestAlert(t *testing.T) {
	if got, want := Alert(UnrecognizedName), []byte{21, 3, 3, 0, 2, 2, 112}; !bytes.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// FuzzReader: no split changes the result, package tls begins no handshake for bytes without a
// result, and needs no more than those of a whole ClientHello to judge it.
func FuzzReader(f *testing.F) {
	real := capture(f)
	for _, seed := range [][]byte{
		real, inRecords(real[recordHeader:], 1), inRecords(real[recordHeader:], 100), real[:40], []byte("GET / HTTP/1.1\r\n"),
		record(recordHandshake, nil), Alert(40), record(recordHandshake, append(message(2), 1)),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		whole, err := feed(t, b)
		if whole && err != nil {
			t.Fatalf("whole, and %v", err)
		}
		parsed, failure := judge(b)
		switch {
		case parsed && !whole && err != errBehind && err != errWithin && len(b) <= MaxSize:
			t.Fatalf("package tls has parsed a ClientHello, Reader: %v", err)
		case whole && !parsed && (errors.Is(failure, io.EOF) || errors.Is(failure, io.ErrUnexpectedEOF)):
			t.Fatalf("package tls waits for more: %v", failure)
		}
	})
}

// judge reports whether package tls parses a ClientHello at the start of b, and its error.
func judge(b []byte) (parsed bool, err error) {
	errParsed := errors.New("parsed")
	err = tls.Server(&input{r: bytes.NewReader(b)}, &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			parsed = true
			return nil, errParsed
		},
	}).Handshake()
	return parsed, err
}

// input is a net.Conn that only reads.
type input struct {
	net.Conn
	r io.Reader
}

func (i *input) Read(b []byte) (int, error)  { return i.r.Read(b) }
func (i *input) Write(b []byte) (int, error) { return len(b), nil }
func (i *input) Close() error                { return nil }

// BenchmarkReader measures a ClientHello with a key share of ML-KEM-768.
func BenchmarkReader(b *testing.B) {
	real := capture(b)
	for b.Loop() {
		var r Reader
		if whole, err := r.Feed(real); !whole || err != nil {
			b.Fatal(whole, err)
		}
	}
}
