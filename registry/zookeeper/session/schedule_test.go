package session

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// peer is the server's end of a connection.
type peer struct{ net.Conn }

// greeted is what a client says first.
type greeted struct {
	zxid     int64
	timeout  time.Duration
	id       int64
	password string
}

// greet reads the greeting, and begins a session of 30 s with the id 7.
func (p peer) greet() (g greeted) {
	b, err := readFrame(p)
	if err != nil {
		return g
	}
	d := decoder{b: b}
	d.int32()
	g = greeted{d.int64(), time.Duration(d.int32()) * time.Millisecond, d.int64(), d.text()}
	_, _ = p.Write(frame(wire(0, 30_000, int64(7), "0123456789abcdef", false)...))
	return g
}

// serve answers all requests until the end of the connection, or of n requests. Their changes have numbers down from 50.
func (p peer) serve(n int) {
	for i := range n {
		b, err := readFrame(p)
		if err != nil {
			return
		}
		d := decoder{b: b}
		if _, err := p.Write(response(int(d.int32()), int64(50-i%40), 0)); err != nil {
			return
		}
	}
}

const forEver = 1 << 30

// pipes returns a Dial whose connections are served by serve, which gets their number from 1.
func pipes(serve func(n int, p peer)) func(context.Context, string) (net.Conn, error) {
	n := 0
	return func(context.Context, string) (net.Conn, error) {
		client, server := net.Pipe()
		n++
		go func() {
			defer server.Close()
			serve(n, peer{server})
		}()
		return client, nil
	}
}

// inTime opens a session, which test must close. Time passes only while all wait.
func inTime(t *testing.T, change func(*Options), test func(t *testing.T, s *Session, h *recorder)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := newRecorder()
		opt := Options{Servers: []string{"a:1"}, Timeout: 10 * time.Second, Handler: h}
		change(&opt)
		s := New(opt)
		s.Start()
		test(t, s, h)
		time.Sleep(2 * time.Hour) // no server sleeps for longer
	})
}

// TestSigns: a session asks for signs of life three times in its time, and gives up the server after two thirds of the time without.
func TestSigns(t *testing.T) {
	const signs = 100
	var at []time.Duration
	serve := func(n int, p peer) {
		begin := time.Now()
		if n > 1 {
			return
		}
		p.greet()
		for range signs {
			p.serve(1)
			at = append(at, time.Since(begin))
		}
		_, _ = io.Copy(io.Discard, p)
	}
	inTime(t, func(o *Options) { o.Dial = pipes(serve) }, func(t *testing.T, s *Session, h *recorder) {
		begin := time.Now()
		if err := <-h.lost; err != ErrSilent {
			t.Error(err)
		}
		last := at[len(at)-1]
		if lost := time.Since(begin) - last; lost != 20*time.Second {
			t.Errorf("lost after %v", lost)
		}
		if want := (signs - 1) * 10 * time.Second; last != want {
			t.Errorf("the last sign was after %v, want %v", last, want)
		}
		s.Close()
	})
}

// TestDeafServer: a server that sends, but does not read, is given up once a sign of life could not be asked for.
func TestDeafServer(t *testing.T) {
	serve := func(n int, p peer) {
		if n > 1 {
			return
		}
		p.greet()
		p.serve(1)
		for {
			if _, err := p.Write(response(xidPing, 1, 0)); err != nil {
				return
			}
			time.Sleep(time.Second)
		}
	}
	inTime(t, func(o *Options) { o.Dial = pipes(serve) }, func(t *testing.T, s *Session, h *recorder) {
		begin := time.Now()
		<-h.lost
		if lost := time.Since(begin); lost != 30*time.Second {
			t.Errorf("lost after %v", lost)
		}
		s.Close()
	})
}

// TestFirstMessages: a session says who it is, asks for a sign of life, and is connected once it has that.
func TestFirstMessages(t *testing.T) {
	ping := wire(xidPing, opPing)
	for user, want := range map[string][][]byte{"": {ping}, "me": {wire(xidAuth, opAuth, 0, "digest", "me:secret"), ping}} {
		var got [][]byte
		serve := func(_ int, p peer) {
			p.greet()
			for range want {
				b, _ := readFrame(p)
				got = append(got, b)
			}
			time.Sleep(time.Second)
			_, _ = p.Write(response(xidPing, 1, 0))
			p.serve(forEver)
		}
		inTime(t, func(o *Options) { o.Username, o.Password, o.Dial = user, "secret", pipes(serve) }, func(t *testing.T, s *Session, h *recorder) {
			begin := time.Now()
			<-h.connected
			if !slices.EqualFunc(got, want, bytes.Equal) || time.Since(begin) != time.Second {
				t.Errorf("user %q: %v after %v", user, got, time.Since(begin))
			}
			s.Close()
		})
	}
}

// TestHandshakeTime: a server has half of a session's time to answer first, and at least two seconds.
func TestHandshakeTime(t *testing.T) {
	for _, c := range []struct{ timeout, want time.Duration }{{10 * time.Second, 5 * time.Second}, {time.Second, minHandshake}} {
		for name, serve := range map[string]func(n int, p peer){
			"reads":         func(_ int, p peer) { _, _ = io.Copy(io.Discard, p) },
			"does not read": func(_ int, p peer) { time.Sleep(time.Hour) },
			"stops":         func(_ int, p peer) { _, _ = readFrame(p); _, _ = p.Write([]byte{0, 0, 0, 9, 0}); time.Sleep(time.Hour) },
		} {
			inTime(t, func(o *Options) { o.Timeout, o.Dial = c.timeout, pipes(serve) }, func(t *testing.T, s *Session, h *recorder) {
				begin := time.Now()
				if err := <-h.lost; !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("%s: %v", name, err)
				}
				if d := time.Since(begin); d != c.want {
					t.Errorf("a server that %s has %v, want %v", name, d, c.want)
				}
				s.Close()
			})
		}
	}
}

// TestNextSession: the next connection goes on with the session, and with the last change that was seen, unless the session has ended: as
// the server says, or as no server was heard for its time.
func TestNextSession(t *testing.T) {
	goesOn := greeted{50, 10 * time.Second, 7, "0123456789abcdef"}
	another := greeted{0, 10 * time.Second, 0, string(make([]byte, passwordSize))}
	for name, c := range map[string]struct {
		outage time.Duration // until the failure of the next connection
		ended  bool          // the server says so at the next connection
		want   greeted
		isNew  bool
	}{
		"soon": {0, false, goesOn, false}, "in time": {30 * time.Second, false, goesOn, false}, "too late": {30*time.Second + 1, false, another, true},
		"ended": {0, true, another, true},
	} {
		greetings := make(chan greeted, 10)
		serve := func(n int, p peer) {
			if n == 2 && c.ended {
				_, _ = readFrame(p)
				_, _ = p.Write(frame(wire(0, 0, int64(0), "0123456789abcdef", false)...))
				_, _ = io.Copy(io.Discard, p)
				return
			}
			greetings <- p.greet()
			if n == 1 {
				p.serve(3)
				return
			}
			p.serve(forEver)
		}
		dials := 0
		inTime(t, func(o *Options) {
			o.Servers = []string{"a:1", "b:1"} // so that there is no pause before the next connection
			dial := pipes(serve)
			o.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
				if dials++; dials == 2 && !c.ended {
					time.Sleep(c.outage)
					return nil, io.ErrClosedPipe
				}
				return dial(ctx, addr)
			}
		}, func(t *testing.T, s *Session, h *recorder) {
			if first, got := <-h.connected, <-greetings; !first || got != another {
				t.Errorf("%s: at first %+v, new %t", name, got, first)
			}
			if isNew, got := <-h.connected, <-greetings; isNew != c.isNew || got != c.want {
				t.Errorf("%s: %+v, new %t; want %+v", name, got, isNew, c.want)
			}
			if c.ended {
				<-h.lost
				if err := <-h.lost; err != Expired {
					t.Errorf("%s: lost: %v", name, err)
				}
			}
			s.Close()
		})
	}
}

// TestTries: all servers are tried before each pause, which is longer each time. A connection that has lasted makes the next pause short.
func TestTries(t *testing.T) {
	const works = 22 // the connection that a server answers
	for lasts, isShort := range map[time.Duration]bool{maxPause: false, maxPause + 1: true} {
		var at []time.Time
		var ended time.Time
		dial := pipes(func(_ int, p peer) {
			p.greet()
			p.serve(1)
			time.Sleep(lasts)
			ended = time.Now()
		})
		inTime(t, func(o *Options) {
			o.Servers = []string{"a:1", "b:1"}
			o.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
				if at = append(at, time.Now()); len(at) == works {
					return dial(ctx, addr)
				}
				return nil, io.ErrClosedPipe
			}
		}, func(t *testing.T, s *Session, h *recorder) {
			for range works + 2 {
				<-h.lost
			}
			s.Close()
			pause := minPause
			for i := 2; i < works; i += 2 {
				if at[i-1] != at[i-2] {
					t.Errorf("the servers of round %d are tried at %v and %v", i/2, at[i-2], at[i-1])
				}
				if d := at[i].Sub(at[i-1]); d < pause/2 || d > pause*3/2 {
					t.Errorf("pause %d is %v, want about %v", i/2, d, pause)
				}
				pause = min(2*pause, maxPause)
			}
			d, want := at[works].Sub(ended), maxPause
			if isShort {
				want = minPause
				if d != 0 {
					t.Errorf("the other server is tried after %v", d)
				}
				d = at[works+1].Sub(at[works])
			}
			if d < want/2 || d > want*3/2 {
				t.Errorf("after a connection of %v the pause is %v", lasts, d)
			}
		})
	}
}

// TestFirstServer: sessions begin with different servers, whatever the order of these.
func TestFirstServer(t *testing.T) {
	first := map[string]bool{}
	for range 64 {
		var dialled chan string
		inTime(t, func(o *Options) {
			dialled = make(chan string, 100) // of the bubble: time passes while the test waits for it
			o.Servers = []string{"a:1", "b:1"}
			o.Dial = func(_ context.Context, addr string) (net.Conn, error) { dialled <- addr; return nil, io.ErrClosedPipe }
		}, func(t *testing.T, s *Session, _ *recorder) {
			one, other := <-dialled, <-dialled
			if first[one] = true; one == other {
				t.Errorf("%s is tried twice", one)
			}
			s.Close()
		})
	}
	if len(first) != 2 {
		t.Errorf("all begin with one of %v", first)
	}
}

// TestForeignEvent: an event that is malformed ends the connection at once, also while a request is being written. Later requests fail at once.
func TestForeignEvent(t *testing.T) {
	serve := func(n int, p peer) {
		if n > 1 {
			return
		}
		p.greet()
		p.serve(1)
		time.Sleep(time.Second)
		_, _ = p.Write(response(xidEvent, 1, 0)) // reads no request
		time.Sleep(time.Hour)
	}
	inTime(t, func(o *Options) { o.Dial = pipes(serve) }, func(t *testing.T, s *Session, h *recorder) {
		<-h.connected
		begin := time.Now()
		ended := make(chan error)
		go func() {
			_, err := s.Set(context.Background(), "/a", nil)
			ended <- err
		}()
		lost, err := <-h.lost, <-ended
		if d := time.Since(begin); lost != ErrFormat || err != ErrLost || d != time.Second {
			t.Errorf("lost: %v; the request: %v, after %v", lost, err, d)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		defer cancel()
		begin = time.Now()
		if _, err := s.Get(ctx, "/a", false); err != ErrLost || time.Since(begin) != 0 {
			t.Errorf("a request without a connection: %v after %v", err, time.Since(begin))
		}
		s.Close()
	})
}

// TestGivenUp: a request that is given up leaves the connection alone, and one without an answer by its deadline ends the connection.
func TestGivenUp(t *testing.T) {
	serve := func(n int, p peer) {
		if n > 1 {
			return
		}
		p.greet()
		p.serve(1)
		_, _ = io.Copy(io.Discard, p)
	}
	inTime(t, func(o *Options) { o.Dial = pipes(serve) }, func(t *testing.T, s *Session, h *recorder) {
		<-h.connected
		for _, isDeadline := range []bool{false, true} {
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
			if !isDeadline {
				time.AfterFunc(time.Second, cancel)
			}
			_, err := s.Get(ctx, "/a", false)
			synctest.Wait()
			if errors.Is(err, context.DeadlineExceeded) != isDeadline || len(h.lost) > 0 != isDeadline {
				t.Errorf("deadline %t: %v, lost %d times", isDeadline, err, len(h.lost))
			}
			cancel()
		}
		s.Close()
	})
}

// TestClose: the end of a session waits for a server that has to be told, for at most closeTimeout, and for nothing else. All is over then.
func TestClose(t *testing.T) {
	for name, c := range map[string]struct {
		serve func(n int, p peer)
		alive bool          // the session has begun
		want  time.Duration // that Close takes
	}{
		"a server that answers": {func(_ int, p peer) { p.greet(); p.serve(2) }, true, 0},
		"a silent server":       {func(_ int, p peer) { p.greet(); p.serve(1); _, _ = io.Copy(io.Discard, p) }, true, closeTimeout},
		"a handshake":           {func(_ int, p peer) { _, _ = io.Copy(io.Discard, p) }, false, 0},
		"a first sign of life":  {func(_ int, p peer) { p.greet(); _, _ = io.Copy(io.Discard, p) }, false, 0},
		"a pause":               {func(int, peer) {}, false, 0},
	} {
		inTime(t, func(o *Options) { o.Dial = pipes(c.serve) }, func(t *testing.T, s *Session, h *recorder) {
			if c.alive {
				<-h.connected
			}
			synctest.Wait()
			begin := time.Now()
			s.Close()
			if d := time.Since(begin); d != c.want {
				t.Errorf("%s: Close takes %v, want %v", name, d, c.want)
			}
		})
	}
	const lingers = time.Second
	isOver := false
	inTime(t, func(o *Options) {
		o.Dial = func(ctx context.Context, _ string) (net.Conn, error) {
			<-ctx.Done()
			time.Sleep(lingers)
			isOver = true
			return nil, ctx.Err()
		}
	}, func(t *testing.T, s *Session, _ *recorder) {
		synctest.Wait()
		if s.Close(); !isOver {
			t.Error("Close does not wait for a Dial that runs")
		}
	})
}
