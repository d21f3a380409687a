package reactor

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/internal/racetest"
	"github.com/remora-proxy/remora/internal/syncbuffer"
	"github.com/remora-proxy/remora/internal/testcerts"
	"github.com/remora-proxy/remora/proxy/certs"
	"github.com/remora-proxy/remora/proxy/fair"
	"github.com/remora-proxy/remora/proxy/loop"
)

const meshName = "spiffe://test/sidecar"

// NewIdentity returns a certificate of a mesh whose sidecars accept each other.
func NewIdentity(t testing.TB) *certs.Source {
	ca := testcerts.New(t)
	cert, key := ca.Issue(testcerts.Leaf{Names: []string{meshName}})
	return openIdentity(t, testcerts.NewDir(t, ca, cert, key))
}

func openIdentity(t testing.TB, dir testcerts.Dir) *certs.Source {
	t.Helper()
	s, err := certs.Open(certs.Options{
		Cert: dir.Cert, Key: dir.Key, CA: dir.CA, Peers: []string{meshName},
		Interval: time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// awaitFailure waits until n failures with the code were counted.
func awaitFailure(t *testing.T, e *Reactor, code string, n int64) {
	t.Helper()
	for end := time.Now().Add(waitLimit); e.Stats().TLSFailures[code] != n; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s was not counted %d times: %v", code, n, e.Stats().TLSFailures)
		}
	}
}

// TestTLSRefusesPeers: a peer that is not accepted reaches no stream, and is counted and
// logged with a code.
func TestTLSRefusesPeers(t *testing.T) {
	ca, other := testcerts.New(t), testcerts.New(t)
	cert, key := ca.Issue(testcerts.Leaf{Names: []string{meshName}})
	own := openIdentity(t, testcerts.NewDir(t, ca, cert, key))
	names := []string{meshName}
	for _, c := range []struct {
		name, code string
		issue      func() (cert, key []byte) // nil: none
	}{
		{"expired", certs.CodeExpired, func() ([]byte, []byte) { return ca.Issue(testcerts.Leaf{Names: names, Expired: true}) }},
		{"wrong name", certs.CodeWrongPeer, func() ([]byte, []byte) { return ca.Issue(testcerts.Leaf{Names: []string{"spiffe://test/x"}}) }},
		{"self-signed", certs.CodeUnknownCA, func() ([]byte, []byte) { return testcerts.SelfSigned(t, testcerts.Leaf{Names: names}) }},
		{"other authority", certs.CodeUnknownCA, func() ([]byte, []byte) { return other.Issue(testcerts.Leaf{Names: names}) }},
		{"no certificate", certs.CodeNoCertificate, nil},
		{"plain text", CodePlaintext, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			var log syncbuffer.Buffer
			e := start(t, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
			addr := listen(t, e, ListenOptions{TLS: own.Server}, func() loop.Receiver {
				t.Error("it was accepted")
				return nil
			})
			raw := dial(t, addr)
			nc := net.Conn(raw)
			if c.code != CodePlaintext {
				config := &tls.Config{InsecureSkipVerify: true}
				if c.issue != nil {
					pair, err := tls.X509KeyPair(c.issue())
					if err != nil {
						t.Fatal(err)
					}
					config.Certificates = []tls.Certificate{pair}
				}
				nc = tls.Client(raw, config)
			}
			_, _ = io.WriteString(nc, "GET / HTTP/1.1\r\n\r\n")
			if b, err := io.ReadAll(nc); len(b) > 64 || c.code != CodePlaintext && err == nil {
				t.Errorf("read %q, %v", b, err)
			}
			awaitFailure(t, e, c.code, 1)
			for end := time.Now().Add(waitLimit); !strings.Contains(log.String(), "code="+c.code); time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("log: %s", log.String())
				}
			}
			if st := e.Stats(); st.Handshakes != 0 || st.Panics > 0 {
				t.Errorf("%+v", st)
			}
		})
	}
}

// TestTLSHealthCheck: a peer that connects and closes, as health checks do, is no
// failure. A peer that closes during the handshake is one.
func TestTLSHealthCheck(t *testing.T) {
	e := start(t, Options{})
	addr := listen(t, e, ListenOptions{TLS: NewIdentity(t).Server}, echo)
	for i, text := range []string{"", "\x16", "\x16\x03\x01"} {
		c := must.Dial(t, "tcp", addr)
		must.Write(t, c, text)
		_ = c.(*net.TCPConn).CloseWrite()
		_, _ = io.ReadAll(c) // until the listener has closed
		c.Close()
		awaitFailure(t, e, CodeFailed, int64(i))
	}
}

// TestTLSDialRefuses: a dial fails without OnOpen if the certificate of the server is not
// accepted.
func TestTLSDialRefuses(t *testing.T) {
	own, other := NewIdentity(t), NewIdentity(t)
	e := start(t, Options{DialTLS: func(_, _, _ string) func() *tls.Config { return own.Client }})
	addr := listen(t, e, ListenOptions{TLS: other.Server}, echo)
	ended := make(chan error, 1)
	e.Loops()[0].Post(func() {
		e.Loops()[0].Dial(addr, waitLimit, &stream{
			open:  func(loop.Conn) { t.Error("opened") },
			close: func(err error) { ended <- err },
		})
	})
	if err := recv(t, ended, "the dial to fail"); err == nil {
		t.Error("no error")
	}
	awaitFailure(t, e, certs.CodeUnknownCA, 1)
	awaitFailure(t, e, CodeRefused, 1) // the listener's view of the same
	if sock, err := e.SocketDialer().Dial(t.Context(), addr, "service", "", nil); sock != nil || err == nil {
		t.Errorf("%v, %v", sock, err)
	}
	awaitFailure(t, e, certs.CodeUnknownCA, 2)
	awaitFailure(t, e, CodeRefused, 2)
	if s := e.Stats(); s.DialErrors != 2 || s.Dialled != 0 || s.Handshakes != 0 {
		t.Errorf("%+v", s)
	}
}

// TestTLSHandshakeBounds: a limited number of handshakes is in progress. Further connections
// are closed meanwhile, unless their source has fewer, and accepted afterwards.
func TestTLSHandshakeBounds(t *testing.T) {
	own := NewIdentity(t)
	e := start(t, Options{})
	e.handshakes.places = fair.NewTable(4)
	addr := listen(t, e, ListenOptions{TLS: own.Server}, echo)
	hello := clientHello(t, own)
	begin := func() net.Conn {
		c := dial(t, addr)
		_, _ = c.Write(hello)
		return c
	}
	var begun []net.Conn
	for range 4 {
		begun = append(begun, begin())
	}
	awaitHandshakes(t, e, 4)
	if b, err := io.ReadAll(begin()); len(b) > 0 || err != nil && !isReset(err) {
		t.Errorf("one too many: %q, %v", b, err)
	}
	awaitFailure(t, e, CodeBusy, 1)
	other := tls.Client(dialFrom(t, "127.0.0.2", addr), own.Client())
	if got := ask(t, other, "hello"); got != "hello" {
		t.Errorf("another source got %q", got)
	}
	awaitFailure(t, e, CodeBusy, 2) // it has taken the place of one of the four
	awaitHandshakes(t, e, 3)
	for _, c := range begun {
		c.Close()
	}
	awaitHandshakes(t, e, 0)
	c := tls.Client(dial(t, addr), own.Client())
	if got := ask(t, c, "hello"); got != "hello" {
		t.Errorf("got %q", got)
	}
}

// TestTLSResumed: handshakes that resume a session are counted.
func TestTLSResumed(t *testing.T) {
	pair, err := tls.X509KeyPair(testcerts.New(t).Issue(testcerts.Leaf{Names: []string{meshName}}))
	if err != nil {
		t.Fatal(err)
	}
	server := &tls.Config{Certificates: []tls.Certificate{pair}}
	e := start(t, Options{})
	addr := listen(t, e, ListenOptions{TLS: func() *tls.Config { return server }}, echo)
	client := &tls.Config{InsecureSkipVerify: true, ClientSessionCache: tls.NewLRUClientSessionCache(1), ServerName: "a"}
	for n := range int64(3) {
		ask(t, tls.Client(dial(t, addr), client), "hello") // with the response comes the ticket
		if st := e.Stats(); st.Handshakes != n+1 || st.Resumed != n {
			t.Errorf("%d handshakes, %d of them resumed; want %d and %d", st.Handshakes, st.Resumed, n+1, n)
		}
	}
}

// TestTLSHandshakeTimeout: a handshake that takes too long is closed, and no longer
// counts.
func TestTLSHandshakeTimeout(t *testing.T) {
	own := NewIdentity(t)
	e := start(t, Options{})
	e.SetHandshakeTimeout(time.Millisecond)
	addr := listen(t, e, ListenOptions{TLS: own.Server}, echo)
	if b, err := io.ReadAll(dial(t, addr)); len(b) > 0 || err != nil {
		t.Errorf("it ended with %q, %v", b, err)
	}
	awaitFailure(t, e, CodeTimeout, 1)
	awaitHandshakes(t, e, 0)
}

// TestTLSHandshakeTimeoutWaiting: the timer ends a handshake that waits for its peer, and its goroutine. Nothing holds the ClientHello
// any more while it waits.
func TestTLSHandshakeTimeoutWaiting(t *testing.T) {
	own := NewIdentity(t)
	e := start(t, Options{})
	e.wait = waitLimit
	l := e.loops[0]
	c := dial(t, listen(t, e, ListenOptions{TLS: own.Server}, echo))
	must.Write(t, c, clientHello(t, own))
	awaitWaiting(t, e, 1)
	on(t, l, func() {
		for n := range l.newcomers {
			if n.input != nil {
				t.Errorf("it holds %d bytes of its ClientHello", len(n.input))
			}
			l.After(0, &n.timer)
		}
	})
	if _, err := io.Copy(io.Discard, c); err != nil && !isReset(err) {
		t.Error(err)
	}
	awaitFailure(t, e, CodeTimeout, 1)
	awaitHandshakes(t, e, 0)
	on(t, l, func() {}) // after the timer
	eventually(t, func() error {
		if n := e.waiting.Load(); n != 1 {
			return fmt.Errorf("%d goroutines are free", n)
		}
		return nil
	})
	if st := e.Stats(); st.Panics > 0 || st.Inbound != 0 || st.Open != 0 {
		t.Errorf("%+v", st)
	}
}

// awaitHandshakes waits until n handshakes are in progress.
func awaitHandshakes(t *testing.T, e *Reactor, n int) {
	t.Helper()
	eventually(t, func() error {
		if got := e.handshakes.places.Taken(); got != n {
			return fmt.Errorf("%d handshakes, want %d", got, n)
		}
		return nil
	})
}

// TestTLSEarlyData: input that arrives in one piece with the end of the handshake reaches
// the stream without a further event. If it takes many reads, the rest follows.
func TestTLSEarlyData(t *testing.T) {
	own := NewIdentity(t)
	for name, c := range map[string]struct{ read, size int }{
		"one read":              {inputSize, 5},
		"some reads":            {inputSize, 5 * inputSize},
		"more than in an event": {1 << 10, 100 * maxReads << 10},
	} {
		t.Run(name, func(t *testing.T) {
			e := start(t, Options{})
			on(t, e.loops[0], func() { e.loops[0].input = e.loops[0].input[:c.read] })
			addr := listen(t, e, ListenOptions{TLS: own.Server}, echo)
			early, got := make([]byte, c.size), make([]byte, c.size)
			for i := range early {
				early[i] = byte(i ^ i>>8 ^ i>>16)
			}
			for range 20 {
				held := &delayedWrites{TCPConn: dial(t, addr)}
				c := tls.Client(held, own.Client())
				if err := c.Handshake(); err != nil { // its last flight is held back
					t.Fatal(err)
				}
				must.Write(t, c, early)
				held.release(t)
				if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, early) {
					t.Fatalf("other bytes came back, %v", err)
				}
			}
		})
	}
}

// TestTLSEarlyByte: of the input that comes with the end of the handshake a single byte may be left, which is no less than the beginning
// of the next input.
func TestTLSEarlyByte(t *testing.T) {
	own := NewIdentity(t)
	e := start(t, Options{})
	lefts := make(chan int, 1)
	addr := listen(t, e, ListenOptions{TLS: own.Server}, func() loop.Receiver {
		s := echo().(*stream)
		opened := s.open
		s.open = func(c loop.Conn) {
			lefts <- len(c.(*conn).secure.wire.in)
			opened(c)
		}
		return s
	})
	early := strings.Repeat("early", 2<<10)
	left := 0
	for size := 4 << 10; left != 1; size += 1 - left {
		held := &delayedWrites{TCPConn: dial(t, addr)}
		c := tls.Client(held, own.Client())
		if err := c.Handshake(); err != nil { // its last flight is held back
			t.Fatal(err)
		}
		first := len(held.held) + size
		must.Write(t, c, early)
		must.Write(t, held.TCPConn, held.held[:first])
		left = recv(t, lefts, "the connection")
		held.held = held.held[first:]
		held.release(t)
		if got := must.Read(t, c, len(early)); string(got) != early {
			t.Fatal("other bytes came back")
		}
		c.Close()
	}
}

// delayedWrites holds back all writes after the first until release, which sends them as
// one.
type delayedWrites struct {
	*net.TCPConn
	first bool
	held  []byte
	open  bool
}

func (h *delayedWrites) Write(b []byte) (int, error) {
	if !h.first || h.open {
		h.first = true
		return h.TCPConn.Write(b)
	}
	h.held = append(h.held, b...)
	return len(b), nil
}

func (h *delayedWrites) release(t *testing.T) {
	h.open = true
	must.Write(t, h.TCPConn, h.held)
}

// TestTLSLargeTransfer: 10 MiB pass unchanged both ways at once, with the peer's records
// split anywhere.
func TestTLSLargeTransfer(t *testing.T) {
	own := NewIdentity(t)
	e := start(t, Options{})
	addr := listen(t, e, ListenOptions{TLS: own.Server}, echo)
	c := tls.Client(dial(t, addr), own.Client())
	sent := make([]byte, 10<<20)
	for i := range sent {
		sent[i] = byte(i ^ i>>8 ^ i>>16)
	}
	go func() { _, _ = c.Write(sent) }()
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, sent) {
		t.Fatalf("not the same: %v", err)
	}
}

// TestTLSAllocs: receiving and sending a message allocates only what package tls allocates
// for each read. The last read of an event finds no input. One allocation is the client's.
func TestTLSAllocs(t *testing.T) {
	if racetest.Enabled {
		t.Skip("the race detector allocates")
	}
	own := NewIdentity(t)
	e := start(t, Options{})
	addr := listen(t, e, ListenOptions{TLS: own.Server}, echo)
	c := tls.Client(dial(t, addr), own.Client())
	own.Close() // its watch allocates
	message, got := make([]byte, 300), make([]byte, 300)
	if n := testing.AllocsPerRun(2000, func() {
		must.Write(t, c, message)
		if _, err := io.ReadFull(c, got); err != nil {
			t.Fatal(err)
		}
	}); n > 3.5 {
		t.Errorf("%v allocations per message and back", n)
	}
}

// TestTLSRotation: certificates change while connections are opened and used. No
// connection fails, old or new.
func TestTLSRotation(t *testing.T) {
	ca := testcerts.New(t)
	cert, key := ca.Issue(testcerts.Leaf{Names: []string{meshName}})
	dir := testcerts.NewDir(t, ca, cert, key)
	own := openIdentity(t, dir)
	e := start(t, Options{})
	addr := listen(t, e, ListenOptions{TLS: own.Server}, echo)
	old := tls.Client(dial(t, addr), own.Client())
	ask(t, old, "hello")
	var serials []string
	for round := range uint64(5) {
		dir.Rotate(ca.Issue(testcerts.Leaf{Names: []string{meshName}}))
		for end := time.Now().Add(waitLimit); own.Stats().Loads < round+2; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("not reloaded")
			}
		}
		c := tls.Client(dial(t, addr), own.Client())
		if ask(t, c, "new") != "new" || ask(t, old, "old") != "old" {
			t.Fatal("wrong echo")
		}
		serials = append(serials, c.ConnectionState().PeerCertificates[0].SerialNumber.String())
	}
	for i := range serials[1:] {
		if serials[i] == serials[i+1] {
			t.Errorf("rounds %d and %d got the same certificate", i, i+1)
		}
	}
	if st := e.Stats(); len(st.TLSFailures) > 0 {
		t.Errorf("%+v", st.TLSFailures)
	}
}

// TestTLSDials: handshakes of dialled connections are counted as those of accepted ones, and so are both ends.
func TestTLSDials(t *testing.T) {
	own := NewIdentity(t)
	e := start(t, withTLS(Options{}, own))
	addr := listen(t, e, ListenOptions{TLS: own.Server}, echo)
	sock, err := e.SocketDialer().Dial(t.Context(), addr, "service", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer sock.Close()
	_ = sock.SetDeadline(time.Now().Add(waitLimit))
	ask(t, sock.(net.Conn), "hello")
	l, got := e.loops[0], make(chan string, 1)
	on(t, l, func() {
		l.Dial(addr, waitLimit, &stream{
			open: func(c loop.Conn) { c.Write([]byte("hello")) },
			data: func(b []byte) { got <- string(b) },
		})
	})
	recv(t, got, "the echo")
	on(t, l, func() {
		if s := e.Stats(); s.Handshakes != 4 || s.Dialled != 2 || s.Accepted != 2 || s.Inbound != 2 || s.Open != 4 || s.DialErrors != 0 || l.load.Load() != 3 {
			t.Errorf("%+v, load %d", s, l.load.Load())
		}
		l.conns.end()
	})
	if s := e.Stats(); s.Open != 1 || s.Inbound != 0 || l.load.Load() != 0 {
		t.Errorf("%+v, load %d", s, l.load.Load())
	}
}

// TestTLSGather: the records of a long write are gathered in memory of the loop. A single record is not, nor is what the connection
// sends afterwards.
func TestTLSGather(t *testing.T) {
	own := NewIdentity(t)
	e := start(t, Options{})
	conns := make(chan loop.Conn, 1)
	below := &wire{nc: dial(t, listen(t, e, ListenOptions{TLS: own.Server}, func() loop.Receiver {
		return &stream{open: func(c loop.Conn) {
			if c.(*conn).secure.wire.in != nil {
				t.Error("the memory of the handshake's input is held")
			}
			conns <- c
		}}
	}))}
	c := tls.Client(below, own.Client())
	if err := c.Handshake(); err != nil {
		t.Fatal(err)
	}
	conn, l := recv(t, conns, "the connection"), e.loops[0]
	on(t, l, func() {
		if conn.Write(make([]byte, maxRecord)); cap(l.encrypted) > 0 {
			t.Error("one record is copied")
		}
		if conn.Write(make([]byte, maxRecord+1)); cap(l.encrypted) < maxRecord+1 || len(l.encrypted) > 0 {
			t.Errorf("memory for %d bytes, and %d are in it", cap(l.encrypted), len(l.encrypted))
		}
	})
	must.Read(t, c, 2*maxRecord+1)
	below.handshakeDone = true // an end without close_notify is an error
	on(t, l, conn.Close)
	if b, err := io.ReadAll(c); len(b) > 0 || err != nil {
		t.Errorf("at the end of a long write: %d bytes, %v", len(b), err)
	}
}

// recorder keeps what is read.
type recorder struct {
	net.Conn
	all []byte
}

func (r *recorder) Read(b []byte) (int, error) {
	n, err := r.Conn.Read(b)
	r.all = append(r.all, b[:n]...)
	return n, err
}

// TestTLSParts: parts that fit in a record together are sent in one record, since each record costs more than a copy, and in order with
// longer parts.
func TestTLSParts(t *testing.T) {
	own := NewIdentity(t)
	e := start(t, Options{})
	conns := make(chan loop.Conn, 1)
	raw := &recorder{Conn: dial(t, listen(t, e, ListenOptions{TLS: own.Server}, func() loop.Receiver {
		return &stream{open: func(c loop.Conn) { conns <- c }}
	}))}
	c := tls.Client(raw, own.Client())
	if err := c.Handshake(); err != nil {
		t.Fatal(err)
	}
	conn := recv(t, conns, "the connection")
	large := strings.Repeat("large ", maxRecord)[:maxRecord+1]
	raw.all = nil
	on(t, e.loops[0], func() {
		conn.WriteParts([][]byte{[]byte("some "), []byte("small "), []byte("parts "), []byte(large), []byte("end "), []byte(large[:maxRecord])})
	})
	const begin, end = "some small parts ", "end "
	if got, want := must.Read(t, c, len(begin+large+end)+maxRecord), begin+large+end+large[:maxRecord]; string(got) != want {
		t.Error("other bytes came")
	}
	const overhead = 17 // of TLS 1.3: the type and the tag
	var sizes []int
	for all := raw.all; len(all) > 0; {
		size := int(binary.BigEndian.Uint16(all[3:]))
		sizes, all = append(sizes, size-overhead), all[5+size:]
	}
	if want := []int{len(begin), maxRecord, 1, maxRecord, len(end)}; !slices.Equal(sizes, want) {
		t.Errorf("records of %d bytes, want %d", sizes, want)
	}
}

// TestTLSPlaintextLeft: a peer that does not speak TLS, and does not take all of Plaintext at once, is closed at once.
func TestTLSPlaintextLeft(t *testing.T) {
	e := start(t, Options{})
	l := listenEcho(t, e, ListenOptions{TLS: NewIdentity(t).Server, Plaintext: make([]byte, 32<<20)}) // more than the kernel takes
	c := dial(t, l.Addr().String())
	must.Write(t, c, "GET / HTTP/1.1\r\n\r\n")
	awaitFailure(t, e, CodePlaintext, 1)
	on(t, e.loops[0], func() {
		if n := len(e.loops[0].newcomers); n > 0 {
			t.Error("it waits for its peer")
		}
	})
	awaitReset(t, c)
}
