package session

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/leaktest"
	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/internal/zktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

const timeout = time.Minute // for any event

// recorder is a Handler that keeps what it is told.
type recorder struct {
	connected chan bool // isNew
	lost      chan error
	changes   chan string
}

func newRecorder() *recorder {
	return &recorder{make(chan bool, 100), make(chan error, 1000), make(chan string, 1000)}
}

func (r *recorder) Connected(_ int64, isNew bool) { r.connected <- isNew }
func (r *recorder) Changed(path string)           { r.changes <- path }
func (r *recorder) Lost(err error) {
	select {
	case r.lost <- err:
	default:
	}
}

func await[T any](t *testing.T, what string, from chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(timeout):
		t.Fatalf("timed out waiting for %s", what)
		panic("unreachable")
	}
}

// open opens a session that outlives any pause of the machine. change may be nil.
func open(t *testing.T, addr string, change func(*Options)) (*Session, *recorder) {
	t.Helper()
	h := newRecorder()
	opt := Options{Servers: []string{addr}, Timeout: 2 * time.Minute, Handler: h}
	if change != nil {
		change(&opt)
	}
	s := New(opt)
	s.Start()
	t.Cleanup(s.Close)
	return s, h
}

// brief sets a short timeout, for a test that waits for its end.
func brief(o *Options) { o.Timeout = time.Second }

// server returns the address of a server, and a path of it that the test has for itself.
func server(t *testing.T) (addr, root string) {
	return zktest.Addr(t), "/" + strings.ReplaceAll(t.Name(), "/", "_") + time.Now().Format("150405.000000")
}

func ctx(t *testing.T) context.Context {
	c, cancel := context.WithTimeout(context.Background(), timeout)
	t.Cleanup(cancel)
	return c
}

// TestRequests sends each kind of request, and checks which errors they have and which watches fire.
func TestRequests(t *testing.T) {
	addr, root := server(t)
	s, h := open(t, addr, nil)
	if isNew := await(t, "the session", h.connected); !isNew {
		t.Error("the first session is not new")
	}
	c := ctx(t)
	step := func(what string, err, want error) {
		t.Helper()
		if err != want {
			t.Fatalf("%s: %v, want %v", what, err, want)
		}
	}
	_, err := s.Exists(c, root, true)
	step("exists before", err, NoNode)
	step("create", s.Create(c, root, []byte("text"), false), nil)
	if path := await(t, "the creation", h.changes); path != root {
		t.Errorf("changed: %s", path)
	}
	step("create again", s.Create(c, root, nil, false), NodeExists)
	step("create below nothing", s.Create(c, root+"/a/b", nil, false), NoNode)
	data, err := s.Get(c, root, true)
	if step("get", err, nil); string(data) != "text" {
		t.Errorf("data %q", data)
	}
	names, err := s.Children(c, root, true)
	if step("children", err, nil); len(names) != 0 {
		t.Errorf("children %q", names)
	}
	step("create a child", s.Create(c, root+"/ü%20", nil, true), nil)
	if path := await(t, "the child", h.changes); path != root {
		t.Errorf("changed: %s", path)
	}
	if names, err = s.Children(c, root, false); err != nil || !slices.Equal(names, []string{"ü%20"}) {
		t.Errorf("children %q, %v", names, err)
	}
	st, err := s.Exists(c, root+"/ü%20", false)
	if step("exists", err, nil); st.Owner == 0 || st.Version != 0 {
		t.Errorf("%+v", st)
	}
	mine := st.Owner
	if st, err = s.Set(c, root, []byte("other")); err != nil || st.Version != 1 || st.Owner != 0 {
		t.Errorf("%+v, %v", st, err)
	}
	if path := await(t, "the data", h.changes); path != root {
		t.Errorf("changed: %s", path)
	}
	step("replace another version", s.Replace(c, root+"/ü%20", 7, nil), BadVersion)
	step("replace nothing", s.Replace(c, root+"/none", 0, nil), NoNode)
	step("delete another version", s.Delete(c, root, 0), BadVersion)

	other, oh := open(t, addr, nil)
	await(t, "another session", oh.connected)
	step("replace", other.Replace(c, root+"/ü%20", 0, []byte("x")), nil)
	if st, err = s.Exists(c, root+"/ü%20", false); err != nil || st.Owner == mine || st.Owner == 0 {
		t.Errorf("after the replacement: %+v, %v", st, err)
	}
	if _, err = s.Children(c, root, true); err != nil {
		t.Fatal(err)
	}
	other.Close()
	if path := await(t, "the end of the other session", h.changes); path != root {
		t.Errorf("changed: %s", path)
	}
	st, err = s.Exists(c, root, false)
	step("exists at the end", err, nil)
	step("delete", s.Delete(c, root, st.Version), nil)
	_, err = s.Children(c, root, false)
	step("children of nothing", err, NoNode)
	_, err = s.Get(c, root, false)
	step("data of nothing", err, NoNode)
}

// TestSessionGoesOn: after a lost connection, the session is the same, its ephemeral nodes are there, and no watch is.
func TestSessionGoesOn(t *testing.T) {
	srv := zktest.Start(t)
	s, h := open(t, srv.Addr(), nil)
	await(t, "the session", h.connected)
	c := ctx(t)
	if err := s.Create(c, "/mine", nil, true); err != nil {
		t.Fatal(err)
	}
	owner := srv.Owner("/mine")
	for range 3 {
		srv.Drop()
		if err := await(t, "the loss", h.lost); err == nil {
			t.Error("lost without a reason")
		}
		if await(t, "the session", h.connected) {
			t.Fatal("the session is another one")
		}
	}
	if srv.Owner("/mine") != owner {
		t.Error("the ephemeral node has gone")
	}
}

// TestRequestTimeout: a request without a response by its deadline ends the connection, and one that is given up does not.
func TestRequestTimeout(t *testing.T) {
	srv := zktest.Start(t)
	s, h := open(t, srv.Addr(), nil)
	await(t, "the session", h.connected)
	srv.Freeze(true)
	givenUp, cancel := context.WithCancel(ctx(t))
	cancel()
	if _, err := s.Get(givenUp, "/", false); !errors.Is(err, context.Canceled) {
		t.Errorf("given up: %v", err)
	}
	other := make(chan error, 1)
	go func() {
		_, err := s.Exists(context.Background(), "/", false)
		other <- err
	}()
	select {
	case err := <-h.lost:
		t.Fatalf("lost before the deadline: %v", err)
	default:
	}
	short, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.Get(short, "/", false); !errors.Is(err, context.DeadlineExceeded) && err != ErrLost {
		t.Errorf("at the deadline: %v", err)
	}
	await(t, "the loss", h.lost)
	if err := await(t, "the other request", other); err != ErrLost {
		t.Errorf("the other request: %v", err)
	}
}

// TestAnotherSession: a session that the server has ended, or has never heard of, is followed by another one.
func TestAnotherSession(t *testing.T) {
	for name, end := range map[string]func(*zktest.Server){
		"ended": (*zktest.Server).Expire, "lost its data": (*zktest.Server).Wipe,
		"cut off": func(s *zktest.Server) {
			s.Cut(true)
			time.AfterFunc(1500*time.Millisecond, func() { s.Cut(false) })
		},
		"frozen": func(s *zktest.Server) {
			s.Freeze(true)
			time.AfterFunc(1500*time.Millisecond, func() { s.Freeze(false) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := zktest.Start(t)
			for range 50 { // the session has seen more than a server without data has
				srv.Create("/some", "x")
			}
			s, h := open(t, srv.Addr(), brief)
			await(t, "the session", h.connected)
			if err := s.Create(ctx(t), "/mine", nil, true); err != nil {
				t.Fatal(err)
			}
			end(srv)
			for !await(t, "another session", h.connected) {
			}
			eventually.Nil(t, "a request to work", func() error {
				_, err := s.Children(ctx(t), "/", false)
				return err
			})
			if srv.Owner("/mine") > 0 {
				t.Error("the ephemeral node of the former session is there")
			}
		})
	}
}

// TestSilentServer: a server that takes requests and answers none is given up, and the requests fail.
func TestSilentServer(t *testing.T) {
	srv := zktest.Start(t)
	s, h := open(t, srv.Addr(), brief)
	await(t, "the session", h.connected)
	srv.Freeze(true)
	if _, err := s.Children(ctx(t), "/", false); err != ErrLost {
		t.Errorf("%v, want %v", err, ErrLost)
	}
	if err := await(t, "the loss", h.lost); err != ErrSilent {
		t.Errorf("%v, want %v", err, ErrSilent)
	}
}

// TestOtherServers: servers that are down, or refuse, are passed over.
func TestOtherServers(t *testing.T) {
	srv := zktest.Start(t)
	refuses := must.Listen(t)
	go func() {
		for {
			c, err := refuses.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	s, h := open(t, "", func(o *Options) { o.Servers = []string{refuses.Addr().String(), "127.0.0.1:1", srv.Addr()} })
	await(t, "the session", h.connected)
	if _, err := s.Children(ctx(t), "/", false); err != nil {
		t.Error(err)
	}
	refuses.Close()
}

// TestDigest: nodes of a user can be read after the user has proved itself, and a session with credentials makes nodes that are
// its own.
func TestDigest(t *testing.T) {
	addr, root := server(t)
	s, h := open(t, addr, func(o *Options) { o.Username, o.Password = "me", "secret" })
	other, oh := open(t, addr, func(o *Options) { o.Username, o.Password = "you", "secret" })
	await(t, "the session", h.connected)
	await(t, "the other session", oh.connected)
	c := ctx(t)
	if err := s.Create(c, root, []byte("x"), true); err != nil {
		t.Fatal(err)
	}
	if data, err := s.Get(c, root, false); err != nil || string(data) != "x" {
		t.Errorf("%q, %v", data, err)
	}
	if _, err := other.Get(c, root, false); err != NoAuth {
		t.Errorf("another user: %v, want %v", err, NoAuth)
	}
}

// TestLargeResponse: a response beyond the bound fails its request, and no other one.
func TestLargeResponse(t *testing.T) {
	srv := zktest.Start(t)
	srv.Create("/large", strings.Repeat("x", maxMessage))
	srv.Create("/small", strings.Repeat("x", maxMessage-100))
	s, h := open(t, srv.Addr(), nil)
	await(t, "the session", h.connected)
	c := ctx(t)
	if _, err := s.Get(c, "/large", false); err != ErrLarge {
		t.Errorf("%v, want %v", err, ErrLarge)
	}
	if data, err := s.Get(c, "/small", false); err != nil || len(data) != maxMessage-100 {
		t.Errorf("%d bytes, %v", len(data), err)
	}
	if len(h.lost) > 0 {
		t.Error("the connection was lost")
	}
}

// frame returns a message with its length.
func frame(body ...byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

// TestForeignServers: whatever a server sends, the session tries again, and nothing else happens.
func TestForeignServers(t *testing.T) {
	var e encoder
	e.int32(0)
	e.int32(60_000)
	e.int64(7)
	e.bytes(make([]byte, passwordSize))
	hello := frame(append(e.b, 0)...)
	header := func(xid, code int32, body ...byte) []byte {
		var e encoder
		e.int32(xid)
		e.int64(1)
		e.int32(code)
		return frame(append(e.b, body...)...)
	}
	for name, c := range map[string]struct {
		sent []byte
		want error
	}{
		"nothing":               {nil, ErrRefused},
		"HTTP":                  {[]byte("HTTP/1.1 400 Bad Request\r\n\r\n"), ErrFormat},
		"a short greeting":      {frame(0, 0, 0), ErrFormat},
		"an empty greeting":     {frame(), ErrFormat},
		"a long greeting":       {frame(make([]byte, maxHandshake+1)...), ErrFormat},
		"a length below 0":      {slices.Concat(hello, []byte{0xff, 0xff, 0xff, 0xff}, make([]byte, headerSize)), ErrFormat},
		"a huge length":         {slices.Concat(hello, []byte{0x7f, 0xff, 0xff, 0xff}, make([]byte, headerSize)), ErrFormat},
		"a message too short":   {slices.Concat(hello, frame(0, 0, 0, 1), make([]byte, 100)), ErrFormat},
		"half a message":        {slices.Concat(hello, []byte{0, 0, 1, 0, 5}), io.ErrUnexpectedEOF},
		"an unknown number":     {slices.Concat(hello, header(99, 0)), ErrFormat},
		"an event without path": {slices.Concat(hello, header(xidEvent, 0, 1, 2)), ErrFormat},
		"an event of a length":  {slices.Concat(hello, header(xidEvent, 0, 0, 0, 0, 1, 0, 0, 0, 3, 0x7f, 0xff, 0xff, 0xff)), ErrFormat},
		"no authentication":     {slices.Concat(hello, header(xidAuth, int32(AuthFailed))), AuthFailed},
		"a refused request":     {slices.Concat(hello, header(xidPing, int32(NoLogin))), NoLogin},
		"only a greeting":       {hello, io.EOF},
	} {
		t.Run(name, func(t *testing.T) {
			l := must.Listen(t)
			done := make(chan struct{})
			go func() {
				defer close(done)
				for {
					in, err := l.Accept()
					if err != nil {
						return
					}
					in.Write(c.sent)
					in.(*net.TCPConn).CloseWrite()
					io.Copy(io.Discard, in)
					in.Close()
				}
			}()
			_, h := open(t, l.Addr().String(), nil)
			for range 2 {
				if err := await(t, "the failure", h.lost); err != c.want {
					t.Errorf("%v, want %v", err, c.want)
				}
			}
			if len(h.connected) > 0 {
				t.Error("connected to a server that has answered no request")
			}
			t.Cleanup(func() { l.Close(); <-done }) // before the session closes
		})
	}
}

// TestForeignResponses: a response that is not what was asked for fails the request.
func TestForeignResponses(t *testing.T) {
	for name, body := range map[string][]byte{
		"nothing": {}, "a count": {0, 0, 0, 5}, "a huge count": {0x7f, 0xff, 0xff, 0xff}, "a count below 0": {0xff, 0xff, 0xff, 0},
		"a length": {0, 0, 0, 1, 0, 0, 0, 9, 'x'},
	} {
		d := decoder{b: body}
		if list := d.texts(); d.err == nil || list != nil {
			t.Errorf("%s: %q", name, list)
		}
	}
	d := decoder{b: []byte{0xff, 0xff, 0xff, 0xff}}
	if list := d.texts(); d.err != nil || list != nil {
		t.Errorf("no list: %q, %v", list, d.err)
	}
}

func TestCodes(t *testing.T) {
	for code, want := range map[Code]string{NoNode: "zookeeper: no such node", -999: "zookeeper: error -999"} {
		if got := code.Error(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for code, want := range map[Code]bool{NoNode: false, NoAuth: false, BadVersion: false, NodeExists: false, Expired: true, AuthFailed: true, NoLogin: true} {
		if code.EndsConnection() != want {
			t.Errorf("%v ends the connection: %t", code, !want)
		}
	}
}

// FuzzMessages reads any bytes as messages of a server, with each kind of value in them.
func FuzzMessages(f *testing.F) {
	f.Add(frame(0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 'x'))
	f.Add(frame(0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 3, 0, 0, 0, 1, '/'))
	f.Fuzz(func(t *testing.T, b []byte) {
		from := strings.NewReader(string(b))
		for {
			m, err := readMessage(from)
			if err != nil {
				if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && err != ErrFormat {
					t.Fatal(err)
				}
				return
			}
			for _, read := range []func(*decoder){
				func(d *decoder) { d.texts() }, func(d *decoder) { d.text() }, func(d *decoder) { d.stat() },
				func(d *decoder) { d.bool(); d.int64() },
			} {
				d := decoder{b: m.body}
				read(&d)
				if d.err == nil && len(d.b) > len(m.body) {
					t.Fatal("more is left than there was")
				}
			}
		}
	})
}
