package reactor

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/proxy/loop"
)

// TestKeyUpdates: a peer may update its keys now and then. One that does so all the time loses its
// connection.
func TestKeyUpdates(t *testing.T) {
	for updates, want := range map[int]error{maxReplies: nil, maxReplies + 1: errReplies, 1000: errReplies} {
		own := NewIdentity(t)
		e := start(t, Options{})
		result := make(chan error, 2)
		raw := dial(t, listen(t, e, ListenOptions{TLS: own.Server}, func() loop.Receiver {
			return &stream{
				open: func(lc loop.Conn) { // no new second begins, however slow the loop is
					c := lc.(*conn)
					c.secure.wire.since = c.loop.now + time.Hour
				},
				close: func(err error) { result <- err },
				data: func(b []byte) {
					if bytes.Contains(b, []byte("last")) {
						result <- nil
					}
				},
			}
		}))
		w := newRecordWriter(t, raw, own.Client())
		for i := range updates {
			w.updateKey()
			if i%8 == 7 { // package tls accepts few without data between them
				w.record([]byte("x"), 23)
			}
		}
		w.record([]byte("last"), 23)
		must.Write(t, raw, w.records)
		if err := recv(t, result, "the data, or the end"); !errors.Is(err, want) {
			t.Errorf("%d updates: %v, want %v", updates, err, want)
		}
		if n := e.Stats().TLSFailures[CodeFailed]; (n == 1) != (want != nil) {
			t.Errorf("%d updates: counted %d times", updates, n)
		}
	}
}

// TestKeyUpdatesLater: the count of updates begins anew each second.
func TestKeyUpdatesLater(t *testing.T) {
	own := NewIdentity(t)
	e := start(t, Options{})
	conns, ends := make(chan *conn, 1), make(chan string, 4)
	raw := dial(t, listen(t, e, ListenOptions{TLS: own.Server}, func() loop.Receiver {
		return &stream{
			open: func(c loop.Conn) { conns <- c.(*conn) }, close: func(err error) { ends <- fmt.Sprint(err) },
			data: func(b []byte) {
				if bytes.Contains(b, []byte("last")) {
					ends <- "read"
				}
			},
		}
	}))
	w := newRecordWriter(t, raw, own.Client())
	c := recv(t, conns, "the connection")
	for second, want := range []string{"read", "read", errReplies.Error()} {
		switch second {
		case 1:
			on(t, c.loop, func() { c.secure.wire.since -= time.Second })
		case 2: // no new second begins, however slow the loop is
			on(t, c.loop, func() { c.secure.wire.since = c.loop.now + time.Hour })
		}
		for i := range maxReplies {
			w.updateKey()
			if i%8 == 7 { // package tls accepts few without data between them
				w.record([]byte("x"), 23)
			}
		}
		w.record([]byte("last"), 23)
		must.Write(t, raw, w.records)
		w.records = nil
		if got := recv(t, ends, "the data, or the end"); got != want {
			t.Errorf("second %d: %s, want %s", second, got, want)
		}
	}
}

// TestReplies: the count of responses begins anew after a second, and not earlier.
func TestReplies(t *testing.T) {
	l := &eventLoop{now: time.Hour}
	w := &wire{c: &conn{descriptor: descriptor{loop: l}, state: connOpen}}
	for _, c := range []struct {
		after time.Duration
		want  int // so many responses are allowed
	}{{0, maxReplies}, {time.Second - 1, 0}, {1, maxReplies}, {time.Second, maxReplies}, {time.Hour, maxReplies}, {1, 0}} {
		l.now += c.after
		got := 0
		for range maxReplies + 1 {
			if w.mayReply() {
				got++
			}
		}
		if got != c.want {
			t.Errorf("%s later: %d responses, want %d", c.after, got, c.want)
		}
	}
	if w.c.state = connClosed; !w.mayReply() {
		t.Error("the last message of a connection that this side has closed is counted")
	}
}

// recordWriter makes the records of a client of TLS 1.3, as RFC 8446 has them in sections 5.2, 7.1 and 7.2.
type recordWriter struct {
	t       *testing.T
	secret  []byte // of the client's application traffic
	key     cipher.AEAD
	nonce   []byte
	number  uint64
	records []byte
}

// newRecordWriter does the handshake over nc. Nothing but the records may be written after it.
func newRecordWriter(t *testing.T, nc net.Conn, config *tls.Config) *recordWriter {
	t.Helper()
	var secrets bytes.Buffer
	config.KeyLogWriter = &secrets
	c := tls.Client(nc, config)
	if err := c.Handshake(); err != nil {
		t.Fatal(err)
	}
	if s := c.ConnectionState(); s.CipherSuite != tls.TLS_AES_128_GCM_SHA256 {
		t.Fatalf("cipher suite %x", s.CipherSuite)
	}
	w := &recordWriter{t: t}
	for line := range strings.Lines(secrets.String()) {
		if rest, ok := strings.CutPrefix(line, "CLIENT_TRAFFIC_SECRET_0 "); ok {
			_, secret, _ := strings.Cut(strings.TrimSpace(rest), " ")
			w.secret, _ = hex.DecodeString(secret)
		}
	}
	w.setKey()
	return w
}

func (w *recordWriter) expand(label string, n int) []byte {
	info := binary.BigEndian.AppendUint16(nil, uint16(n))
	info = append(append(append(info, byte(6+len(label))), "tls13 "+label...), 0)
	b, err := hkdf.Expand(sha256.New, w.secret, string(info), n)
	if err != nil {
		w.t.Fatal(err)
	}
	return b
}

func (w *recordWriter) setKey() {
	block, err := aes.NewCipher(w.expand("key", 16))
	if err != nil {
		w.t.Fatal(err)
	}
	w.key, _ = cipher.NewGCM(block)
	w.nonce, w.number = w.expand("iv", 12), 0
}

// record appends a record with content of a type.
func (w *recordWriter) record(content []byte, kind byte) {
	header := binary.BigEndian.AppendUint16([]byte{23, 3, 3}, uint16(len(content)+1+16))
	nonce := bytes.Clone(w.nonce)
	last := binary.BigEndian.Uint64(nonce[4:]) ^ w.number
	binary.BigEndian.PutUint64(nonce[4:], last)
	w.records = append(w.records, header...)
	w.records = w.key.Seal(w.records, nonce, append(bytes.Clone(content), kind), header)
	w.number++
}

// updateKey appends a KeyUpdate that asks for one in response.
func (w *recordWriter) updateKey() {
	w.record([]byte{24, 0, 0, 1, 1}, 22)
	w.secret = w.expand("traffic upd", 32)
	w.setKey()
}
