package kernel_test

import (
	"errors"
	"net"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/remora-proxy/remora/internal/racetest"
	"github.com/remora-proxy/remora/proxy/reactor/backlogtest"
	"github.com/remora-proxy/remora/proxy/reactor/epoll"
	"github.com/remora-proxy/remora/proxy/reactor/gnet"
	"github.com/remora-proxy/remora/proxy/reactor/kernel"
)

// engines open Pollers, by their names.
var engines = map[string]func() (kernel.Poller, error){
	"epoll": func() (kernel.Poller, error) { return epoll.Open() },
	"gnet":  func() (kernel.Poller, error) { return gnet.Open() },
}

// forEachPoller runs f with a Poller of each engine.
func forEachPoller(t *testing.T, f func(t *testing.T, open func() kernel.Poller)) {
	for name, open := range engines {
		t.Run(name, func(t *testing.T) {
			f(t, func() kernel.Poller {
				p, err := open()
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					if err := p.Close(); err != nil {
						t.Error(err)
					}
				})
				return p
			})
		})
	}
}

// TestOpenFails: a Poller that can't have all of its descriptors leaves none, and closes none of others. No test may run in
// parallel: the limit is that of the process.
func TestOpenFails(t *testing.T) {
	files := func() []string {
		all, err := os.ReadDir("/proc/self/fd")
		must(t, "list descriptors", err)
		var names []string
		for _, file := range all {
			names = append(names, file.Name())
		}
		return names
	}
	var limit unix.Rlimit
	must(t, "get the limit", unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	defer func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &limit) }() // also after a panic
	var input unix.Stat_t
	must(t, "stat", unix.Fstat(0, &input))
	for name, open := range engines {
		before := files()
		next, err := unix.FcntlInt(0, unix.F_DUPFD_CLOEXEC, 0)
		must(t, "find a free descriptor", err)
		must(t, "close", unix.Close(next))
		for n := 0; ; n++ {
			must(t, "lower the limit", unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(next + n), Max: limit.Max}))
			p, err := open()
			must(t, "restore the limit", unix.Setrlimit(unix.RLIMIT_NOFILE, &limit))
			if err == nil {
				must(t, "close", p.Close())
			}
			after := files()
			isNew := func(name string) bool { return !slices.Contains(before, name) }
			var now unix.Stat_t
			must(t, "stat", unix.Fstat(0, &now))
			if slices.ContainsFunc(after, isNew) || now.Dev != input.Dev || now.Ino != input.Ino {
				t.Errorf("%s with %d descriptors: %v are open, before %v", name, n, after, before)
			}
			if err == nil {
				break
			}
			if !errors.Is(err, unix.EMFILE) {
				t.Fatalf("%s with %d descriptors: %v", name, n, err)
			}
		}
	}
}

// turns records turns. end is called at the end of each.
type turns struct {
	end    func(t *turns) kernel.Wait
	events map[int]kernel.Events // in the turn
	most   int                   // events of a turn
	count  int
}

func (t *turns) BeginTurn() { t.events = map[int]kernel.Events{} }

func (t *turns) OnEvents(fd int, e kernel.Events) { t.events[fd] |= e }

func (t *turns) EndTurn() kernel.Wait {
	t.count++
	t.most = max(t.most, len(t.events))
	return t.end(t)
}

// after returns an end that stops the Poller after some more turns, none of which waits.
func after(more int) func(t *turns) kernel.Wait {
	return func(t *turns) kernel.Wait {
		more--
		return kernel.Wait{Stop: more == 0}
	}
}

// collect runs p for a few turns that do not wait, and returns all events.
func collect(p kernel.Poller) (all map[int]kernel.Events, most int) {
	all = map[int]kernel.Events{}
	stop := after(5)
	t := &turns{end: func(t *turns) kernel.Wait {
		for fd, e := range t.events {
			all[fd] |= e
		}
		return stop(t)
	}}
	p.Run(t)
	return all, t.most
}

// pair returns two connected sockets, which the test closes.
func pair(t *testing.T) (a, b int) {
	t.Helper()
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(ends[0]); _ = unix.Close(ends[1]) })
	return ends[0], ends[1]
}

// must fails the test if a step has failed.
func must(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// TestEvents: a descriptor is reported once when it becomes ready for what is watched, and by Change if it is ready.
func TestEvents(t *testing.T) {
	forEachPoller(t, func(t *testing.T, open func() kernel.Poller) {
		p := open()
		a, b := pair(t)
		write := func() error { _, err := unix.Write(b, []byte("x")); return err }
		for _, step := range []struct {
			name string
			do   func() error
			want kernel.Events
		}{
			{"watch", func() error { return p.Add(a, kernel.Input) }, 0},
			{"watch for output", func() error { return p.Change(a, kernel.Input|kernel.Output) }, kernel.Output},
			{"watch for input", func() error { return p.Change(a, kernel.Input) }, 0},
			{"input", write, kernel.Input},
			{"nothing new", func() error { return nil }, 0},
			{"more input", write, kernel.Input},
			{"input is left", func() error { return p.Change(a, kernel.Input) }, kernel.Input},
			{"the peer's end", func() error { return unix.Shutdown(b, unix.SHUT_WR) }, kernel.Input | kernel.All},
			{"no longer", func() error { return p.Remove(a) }, 0},
			{"after the end", func() error { return unix.Shutdown(b, unix.SHUT_RD) }, 0},
			{"watch for output first", func() error { return p.Add(b, kernel.Output) }, kernel.Output | kernel.Input | kernel.All},
			{"input instead", func() error { return p.Change(b, kernel.Input) }, kernel.Input | kernel.All},
		} {
			must(t, step.name, step.do())
			all, _ := collect(p)
			got := all[a] | all[b]
			if got&^kernel.All != step.want&^kernel.All || got&step.want != step.want {
				t.Errorf("%s: events %b, want %b", step.name, got, step.want)
			}
		}
	})
}

// TestMaxReady: a turn has at most MaxReady events, and no event is lost for that.
func TestMaxReady(t *testing.T) {
	forEachPoller(t, func(t *testing.T, open func() kernel.Poller) {
		p := open()
		const sockets = 3*kernel.MaxReady + 10
		for range sockets {
			a, b := pair(t)
			must(t, "watch", p.Add(a, kernel.Input))
			_, err := unix.Write(b, []byte("x"))
			must(t, "write", err)
		}
		all, most := collect(p)
		if len(all) != sockets || most != kernel.MaxReady {
			t.Errorf("%d sockets were reported, at most %d in a turn; want %d and %d", len(all), most, sockets, kernel.MaxReady)
		}
	})
}

// run calls p.Run, which must end.
func run(t *testing.T, p kernel.Poller, turns kernel.Turns) {
	t.Helper()
	ended := make(chan struct{})
	go func() { defer close(ended); p.Run(turns) }()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("a turn does not begin")
	}
}

// TestLimit: a turn begins after the limit of a wait, whether the limit of the wait before was shorter or longer. Few turns
// begin earlier: a Poller does not poll while it may wait.
func TestLimit(t *testing.T) {
	forEachPoller(t, func(t *testing.T, open func() kernel.Poller) {
		p := open()
		began := time.Now()
		limits := []time.Duration{3 * time.Millisecond, 300 * time.Microsecond, 1, time.Hour, 2 * time.Millisecond, time.Millisecond, time.Hour}
		var until time.Duration // of the wait in progress
		early := 0
		run(t, p, &turns{end: func(*turns) kernel.Wait {
			now := time.Since(began)
			if now < until {
				early++
				return kernel.Wait{Limit: until - now, Now: now}
			}
			if len(limits) == 0 {
				return kernel.Wait{Stop: true}
			}
			limit := limits[0]
			limits = limits[1:]
			if until = now + limit; limit == time.Hour {
				until = 0
				p.Wake()
			}
			return kernel.Wait{Limit: limit, Now: now}
		}})
		if most := 7; early > most {
			t.Errorf("%d turns began early, want at most one for each of %d waits", early, most)
		}
	})
}

// TestWake: Wake has a turn begin, also if it came before the wait.
func TestWake(t *testing.T) {
	forEachPoller(t, func(t *testing.T, open func() kernel.Poller) {
		p := open()
		waits := make(chan struct{})
		go func() { <-waits; p.Wake() }()
		run(t, p, &turns{end: func(t *turns) kernel.Wait {
			switch t.count {
			case 1:
				p.Wake() // before the wait
			case 2:
				close(waits)
			}
			return kernel.Wait{Limit: -1, Stop: t.count == 3}
		}})
	})
}

// TestShared: of two Pollers that watch a listening socket, one is told of a connection at least. Remove ends that,
// though the socket stays open.
func TestShared(t *testing.T) {
	forEachPoller(t, func(t *testing.T, open func() kernel.Poller) {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, "listen", err)
		defer ln.Close()
		fd, err := kernel.Duplicate(ln.(syscall.Conn))
		must(t, "duplicate", err)
		defer unix.Close(fd)
		p, q := open(), open()
		for _, poller := range []kernel.Poller{p, q} {
			must(t, "watch", poller.Add(fd, kernel.Input|kernel.Shared))
		}
		connect := func() {
			c, err := net.Dial("tcp", ln.Addr().String())
			must(t, "dial", err)
			t.Cleanup(func() { _ = c.Close() })
		}
		for n := range 2 {
			connect()
			backlogtest.Await(t, fd, n+1)
			first, _ := collect(p)
			second, _ := collect(q)
			if first[fd] != kernel.Input && second[fd] != kernel.Input {
				t.Errorf("events %b and %b, want one of %b", first[fd], second[fd], kernel.Input)
			}
		}
		for _, poller := range []kernel.Poller{p, q} {
			must(t, "remove", poller.Remove(fd))
		}
		connect()
		backlogtest.Await(t, fd, 3)
		for _, poller := range []kernel.Poller{p, q} {
			if all, _ := collect(poller); all[fd] != 0 {
				t.Errorf("events %b after Remove", all[fd])
			}
		}
	})
}

// TestTurnAlloc: a turn allocates nothing, with an event and with a limit.
func TestTurnAlloc(t *testing.T) {
	if racetest.Enabled {
		t.Skip("the race detector allocates")
	}
	const n = 1000
	forEachPoller(t, func(t *testing.T, open func() kernel.Poller) {
		p := open()
		a, b := pair(t)
		must(t, "watch", p.Add(a, kernel.Input))
		allocs := testing.AllocsPerRun(3, func() { p.Run(&pings{from: b, to: a, left: n}) })
		if most := 10.0; allocs > most { // what a Run needs
			t.Errorf("%v allocations in %d turns, want at most %v", allocs, n, most)
		}
	})
}

// pings are turns that end, in turn, with a byte for a socket, and with a limit that has passed soon.
type pings struct {
	from, to, left int
	b              [1]byte
}

func (p *pings) BeginTurn() {}

func (p *pings) OnEvents(int, kernel.Events) { _, _ = unix.Read(p.to, p.b[:]) }

func (p *pings) EndTurn() kernel.Wait {
	if p.left--; p.left%2 > 0 {
		return kernel.Wait{Limit: 1, Now: time.Duration(-p.left)}
	}
	_, _ = unix.Write(p.from, p.b[:])
	return kernel.Wait{Limit: -1, Stop: p.left == 0}
}
