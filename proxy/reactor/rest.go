package reactor

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// rest is how a loop with little to do waits for its next event: at the end of
// the last one's callback, on gnet's epoll descriptor. gnet left to itself polls once
// more, yields, for which the runtime wakes another thread that finds nothing to do,
// and only then waits: several times a request, when requests come one at a time.
//
// A function given to gnet finds the loop not resting. gnet's word of it is an
// edge of an eventfd, which may lie in the very batch of events whose first one
// takes the rest, and nobody repeats it. So each is an errand from before gnet
// hears of it until it has run, and a loop with errands does not rest. The edge may
// also be late, of a function that has run, and lie in the batch while the loop
// rests: until the batch is through, gnet gives no word of further ones. So a loop
// that rests is woken for an errand by its timerfd, early, which it survives (see
// rearm).
type rest struct {
	epoll   int    // gnet's epoll descriptor; 0: it was not found
	word    int    // gnet's eventfd, by which it hears of functions
	edge    uint32 // what epoll watches word for, EPOLLET with it
	ready   [1]unix.EpollEvent
	errands atomic.Int64
	resting atomic.Bool
	yielded time.Duration // when the loop last gave its P a fresh time slice

	trust int // events that rest without a look before
	skip  int // events that go without a rest
	vain  int // the last value given to skip; 0: the last look found nothing
}

// A rest that finds the next event there already is a system call for nothing. So
// the loop looks first: finds it none, this event and the next restTrust rest; finds
// it one, the next two events go without, and each such look in a row more than
// doubles these, up to restSkip. With the look they are an odd number: events that
// come in pairs would else have all looks fall on the first of a pair. A clock can't
// tell one from the other: under strace, or where system calls are slow, each would
// seem to have waited.
const (
	restTrust = 8
	restSkip  = 30
)

// timeSlice is how long a loop keeps its goroutine running, whether it rests or has
// too much to do. From 10 ms on the runtime's monitor takes the P away from each
// system call that it sees, and looks every 20 µs while that goes on.
const timeSlice = 5 * time.Millisecond

// takeRest ends an event of a socket or a timer; it is never part of an errand.
func (l *eventLoop) takeRest() {
	r := &l.rest
	if l.now-r.yielded > timeSlice {
		r.yielded = l.now
		runtime.Gosched()
	}
	if l.turns.asked || r.epoll == 0 || !r.pays() {
		return
	}
	r.resting.Store(true)
	if r.errands.Load() == 0 {
		r.wait(-1)
	}
	r.resting.Store(false)
}

// pays tells whether this event is to rest.
func (r *rest) pays() bool {
	switch {
	case r.trust > 0:
		r.trust--
	case r.skip > 0:
		r.skip--
		return false
	case r.wait(0):
		r.vain = min(2*r.vain+2, restSkip)
		r.skip = r.vain
		return false
	default:
		r.trust, r.vain = restTrust, 0
	}
	return true
}

// wait returns when gnet's epoll has an event or after so many milliseconds, -1:
// never; and leaves the event there: all but gnet's word is watched by level, and
// that is put back. poll(2) on the epoll descriptor would leave it there too, but
// costs more to wake.
func (r *rest) wait(milliseconds int) (event bool) {
	n, err := unix.EpollWait(r.epoll, r.ready[:], milliseconds)
	if err != nil || n == 0 {
		return false
	}
	if int(r.ready[0].Fd) == r.word {
		_ = unix.EpollCtl(r.epoll, unix.EPOLL_CTL_MOD, r.word, &unix.EpollEvent{Events: r.edge, Fd: int32(r.word)})
	}
	return true
}

// errandBegins comes before a function is given to gnet. Any goroutine may call
// it and errandEnds, which comes once the function has run.
func (l *eventLoop) errandBegins() {
	l.rest.errands.Add(1)
	if l.rest.resting.Load() {
		l.clock.fire()
	}
}

func (l *eventLoop) errandEnds() { l.rest.errands.Add(-1) }

// find sets the descriptors, which gnet does not tell. Its epoll is the one that
// watches fd, and its eventfd what that watches for edges (proc(5),
// /proc/pid/fdinfo). With two of them there is no telling which is gnet's, and a
// loop that waited on the other would not hear of a thing.
func (r *rest) find(fd int) error {
	infos, err := filepath.Glob("/proc/self/fdinfo/*")
	if err != nil {
		return err
	}
	found := 0
	for _, info := range infos {
		text, err := os.ReadFile(info)
		if err != nil {
			continue
		}
		watches, edges := false, []unix.EpollEvent(nil)
		for line := range strings.Lines(string(text)) {
			var target int
			var events uint32
			if n, _ := fmt.Sscanf(line, "tfd: %d events: %x", &target, &events); n != 2 {
				continue
			}
			watches = watches || target == fd
			if events&unix.EPOLLET != 0 {
				edges = append(edges, unix.EpollEvent{Fd: int32(target), Events: events})
			}
		}
		if !watches || len(edges) != 1 {
			continue
		}
		found++
		if r.epoll, err = strconv.Atoi(filepath.Base(info)); err != nil {
			return err
		}
		r.word, r.edge = int(edges[0].Fd), edges[0].Events
	}
	if found != 1 {
		r.epoll = 0
		return fmt.Errorf("%d epoll descriptors watch descriptor %d", found, fd)
	}
	return nil
}
