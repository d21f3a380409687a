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

// idleWait makes a loop with little to do wait for its next event within the callback of the
// last one, on gnet's epoll descriptor. gnet by itself would poll once more, yield, so that
// the runtime wakes another thread in vain, and only then wait: several times per request, if
// there is one request at a time.
//
// A loop must not wait while a function given to gnet has not run. gnet is told of it by an
// edge of its eventfd. That edge may be in the same batch of events as the event whose
// callback waits, and is not repeated. So each function counts as a task, from before Execute
// until it has run, and a loop with tasks does not wait. The edge in the batch may also belong
// to a function that has run, and gnet writes no new edge until the batch is done. So the
// timerfd ends the wait of a loop for a new task. That event is early, which rearm allows.
type idleWait struct {
	epoll   int    // gnet's epoll descriptor; 0 means that it was not found
	eventfd int    // gnet's eventfd, which announces functions
	edge    uint32 // events that epoll watches eventfd for, including EPOLLET
	ready   [1]unix.EpollEvent
	tasks   atomic.Int64
	waiting atomic.Bool
	yielded time.Duration // when the loop last yielded, and so started a time slice

	unchecked int // following events that wait without a check
	skip      int // following events that do not wait
	lastSkip  int // the value that skip was last set to; 0 if the last check found no event
}

// If the next event is ready already, waiting is a useless system call. So the loop checks
// first. If there is no event, this event and the next uncheckedWaits events wait. If there is
// one, the next two events do not wait, and each such check in a row more than doubles that
// number, up to maxSkip. Together with the check the number is odd: otherwise, with events in
// pairs, all checks could fall on the first of a pair. A clock can't replace the check: under
// strace, or with slow system calls, each event would seem to have waited.
const (
	uncheckedWaits = 8
	maxSkip        = 30
)

// timeSlice is how long a loop keeps its goroutine running, busy or not, before it yields.
// After 10 ms the runtime's monitor takes the P away at each system call that it sees, and
// then checks every 20 µs.
const timeSlice = 5 * time.Millisecond

// waitIdle is called at the end of an event of a socket or a timer, never within a task.
func (l *eventLoop) waitIdle() {
	r := &l.idle
	if l.now-r.yielded > timeSlice {
		r.yielded = l.now
		runtime.Gosched()
	}
	if l.turns.byExecute || r.epoll == 0 || !r.worthwhile() {
		return
	}
	r.waiting.Store(true)
	if r.tasks.Load() == 0 {
		r.wait(-1)
	}
	r.waiting.Store(false)
}

func (r *idleWait) worthwhile() bool {
	switch {
	case r.unchecked > 0:
		r.unchecked--
	case r.skip > 0:
		r.skip--
		return false
	case r.wait(0):
		r.lastSkip = min(2*r.lastSkip+2, maxSkip)
		r.skip = r.lastSkip
		return false
	default:
		r.unchecked, r.lastSkip = uncheckedWaits, 0
	}
	return true
}

// wait waits until gnet's epoll has an event, at most for milliseconds; -1 means no limit.
// gnet still receives the event: epoll reports all descriptors by level, and only the eventfd
// by edge, which wait makes epoll report again. poll(2) on the epoll descriptor would not
// consume the edge, but costs more to wake.
func (r *idleWait) wait(milliseconds int) (event bool) {
	n, err := unix.EpollWait(r.epoll, r.ready[:], milliseconds)
	if err != nil || n == 0 {
		return false
	}
	if int(r.ready[0].Fd) == r.eventfd {
		_ = unix.EpollCtl(r.epoll, unix.EPOLL_CTL_MOD, r.eventfd, &unix.EpollEvent{Events: r.edge, Fd: int32(r.eventfd)})
	}
	return true
}

// taskBegins must be called before a function is given to gnet, and taskEnds after it has run.
// Both may be called from any goroutine.
func (l *eventLoop) taskBegins() {
	l.idle.tasks.Add(1)
	if l.idle.waiting.Load() {
		l.clock.timer.Fire()
	}
}

func (l *eventLoop) taskEnds() { l.idle.tasks.Add(-1) }

// findDescriptors sets epoll and eventfd, which gnet does not expose. gnet's epoll is the one
// that watches fd, and its eventfd is the descriptor that this epoll watches for edges
// (proc(5), /proc/pid/fdinfo). If two qualify, neither is used: a loop that waits on the wrong
// one would not wake.
func (r *idleWait) findDescriptors(fd int) error {
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
		r.eventfd, r.edge = int(edges[0].Fd), edges[0].Events
	}
	if found != 1 {
		r.epoll = 0
		return fmt.Errorf("%d epoll descriptors watch descriptor %d", found, fd)
	}
	return nil
}
