package reactor

import (
	"crypto/tls"
	"fmt"
	"runtime"
	"testing"

	"github.com/remora-proxy/remora/internal/must"
)

// withPlaces starts a reactor with so many Ps beside that of its loop.
func withPlaces(t *testing.T, places int, o Options) *Reactor {
	t.Helper()
	before := runtime.GOMAXPROCS(1 + places)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
	o.Loops = 1
	return start(t, o)
}

// TestComputesAtATime: no more handshakes compute at a time than there are Ps beside those of the loops. The others follow.
func TestComputesAtATime(t *testing.T) {
	for _, places := range []int{1, 2} {
		t.Run(fmt.Sprint(places), func(t *testing.T) { computeAtATime(t, places) })
	}
}

func computeAtATime(t *testing.T, places int) {
	const clients = 4
	own := NewIdentity(t)
	e := withPlaces(t, places, Options{})
	begun, release := make(chan struct{}, clients), make(chan struct{})
	addr := listen(t, e, ListenOptions{TLS: func() *tls.Config {
		c := own.Server().Clone()
		c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
			begun <- struct{}{}
			<-release
			return nil, nil
		}
		return c
	}}, echo)
	ended := make(chan string, clients)
	for range clients {
		nc := tls.Client(dial(t, addr), own.Client())
		go func() {
			if err := nc.Handshake(); err != nil {
				ended <- err.Error()
				return
			}
			ended <- ""
		}()
	}
	for range places {
		recv(t, begun, "a handshake")
	}
	eventually(t, func() error {
		if taken, _ := e.handshakes.inProgress(); taken != clients {
			return fmt.Errorf("%d handshakes are in progress", taken)
		}
		return nil
	})
	for range 100 { // the others would begin
		on(t, e.loops[0], func() {})
	}
	if n := len(begun); n > 0 {
		t.Errorf("%d more handshakes compute", n)
	}
	close(release)
	for range clients {
		if err := recv(t, ended, "the handshakes to end"); err != "" {
			t.Error(err)
		}
	}
}

// TestWaitsWithoutPlace: a handshake that waits for its peer keeps no other from computing.
func TestWaitsWithoutPlace(t *testing.T) {
	own := NewIdentity(t)
	silent := must.Listen(t)
	saysHello := func(t *testing.T) {
		nc, err := silent.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { nc.Close() })
		must.Read(t, nc, 100) // of the ClientHello
	}
	for name, wait := range map[string]func(t *testing.T, e *Reactor, addr string){
		"accepted": func(t *testing.T, e *Reactor, addr string) {
			must.Write(t, dial(t, addr), clientHello(t, own))
			awaitWaiting(t, e, 1)
		},
		"dialled": func(t *testing.T, e *Reactor, _ string) {
			l := e.loops[0]
			on(t, l, func() { l.Dial(silent.Addr().String(), waitLimit, &stream{}) })
			saysHello(t)
		},
		"dialled for a socket": func(t *testing.T, e *Reactor, _ string) {
			go func() { _, _ = e.SocketDialer().Dial(t.Context(), silent.Addr().String(), "service", "", nil) }()
			saysHello(t)
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := withPlaces(t, 1, withTLS(Options{}, own))
			addr := listen(t, e, ListenOptions{TLS: own.Server}, echo)
			wait(t, e, addr)
			if got := ask(t, tls.Client(dial(t, addr), own.Client()), "hello"); got != "hello" {
				t.Errorf("got %q", got)
			}
		})
	}
}

// TestComputesWithoutP: handshakes also compute if there is no P but those of the loops.
func TestComputesWithoutP(t *testing.T) {
	own := NewIdentity(t)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	e := start(t, Options{Loops: 2})
	addr := listen(t, e, ListenOptions{TLS: own.Server}, echo)
	if got := ask(t, tls.Client(dial(t, addr), own.Client()), "hello"); got != "hello" {
		t.Errorf("got %q", got)
	}
}

// TestProcessors: a quarter of the loops, and at least two, is for what is not a loop.
func TestProcessors(t *testing.T) {
	for loops, want := range map[int]int{1: 3, 2: 4, 11: 13, 12: 15, 64: 80} {
		if got := Processors(loops); got != want {
			t.Errorf("%d loops: %d, want %d", loops, got, want)
		}
	}
}
