package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/remora-proxy/remora/internal/tasks"
	"github.com/remora-proxy/remora/registry"
)

// counted is a subject that counts what it is told.
type counted struct {
	waits, failures, changes, ends int
	wake                           time.Time // of a wait for a list
}

func (c *counted) unlisted(_ time.Time, hasFailed bool) (wake time.Time) {
	if c.waits++; hasFailed {
		c.failures++
	}
	return c.wake
}

func (c *counted) listed(_, _ mark, resp *clientv3.GetResponse) (after mark) {
	return mark{floor: positionOf(resp.Header)}
}

func (c *counted) changed(*pb.WatchResponse) { c.changes++ }

func (c *counted) settle(time.Time) (wake time.Time, lacksList bool) { return time.Time{}, false }

func (c *counted) end() { c.ends++ }

// played are watches, and a stream whose responses a test makes. Nothing is sent: what the stream would send is kept.
type played struct {
	t       *testing.T
	of      *watches
	feed    *feed
	ctx     context.Context // of the stream
	watches map[string]*watch
	sent    int // requests of the stream that were checked
}

func newPlayed(t *testing.T) *played {
	r := &Registry{log: slog.New(slog.DiscardHandler), contact: registry.NewContact(), tasks: tasks.New(), ready: make(chan struct{})}
	r.tasks.Close() // other streams do not begin
	r.position.init()
	p := &played{t: t, of: newWatches(r), watches: make(map[string]*watch)}
	ctx, cancel := context.WithCancelCause(t.Context())
	p.ctx = ctx
	p.feed = &feed{of: p.of, cancel: cancel, open: make(map[int64]*watch)}
	p.feed.silence = time.AfterFunc(requestTimeout, func() { cancel(errSilent) })
	p.of.feed, p.of.feeds[p.feed] = p.feed, struct{}{}
	return p
}

// open opens watches.
func (p *played) open(names ...string) {
	for _, name := range names {
		w := &watch{of: p.of, ctx: context.Background(), subject: new(counted), key: name, end: name + "0", state: opening, from: 7, began: time.Now()}
		p.watches[name] = w
		p.of.running[w] = struct{}{}
		p.of.open(w)
	}
}

func (p *played) take(resp *pb.WatchResponse) {
	if resp.Header == nil {
		resp.Header = &pb.ResponseHeader{Revision: 9}
	}
	p.feed.take(arrival{of: p.feed, resp: resp})
}

func (p *played) confirm(number int64) { p.take(&pb.WatchResponse{WatchId: number, Created: true}) }

func (p *played) event(number int64) { p.take(&pb.WatchResponse{WatchId: number}) }

func (p *played) refuse() {
	p.take(&pb.WatchResponse{WatchId: -1, Created: true, Canceled: true, CancelReason: "why"})
}

func (p *played) stop(name string) { p.watches[name].stop() }

// expect checks what the stream has sent since, the states of all watches, and how the stream does.
func (p *played) expect(step, sent, states string, end error) {
	p.t.Helper()
	var requests []string
	for _, req := range p.feed.unsent[p.sent:] {
		switch create := req.GetCreateRequest(); {
		case create != nil:
			requests = append(requests, fmt.Sprintf("open %s-%s@%d", create.Key, create.RangeEnd, create.StartRevision))
		case req.GetCancelRequest() != nil:
			requests = append(requests, fmt.Sprint("forget ", req.GetCancelRequest().WatchId))
		}
	}
	p.sent = len(p.feed.unsent)
	var all []string
	for name, w := range p.watches {
		on := ""
		switch {
		case w.feed == p.feed:
			on = " here"
		case w.feed != nil:
			on = " elsewhere"
		}
		all = append(all, fmt.Sprint(name, " ", [...]string{"pausing", "queued", "listing", "opening", "following", "ended"}[w.state], on))
	}
	slices.Sort(all)
	if got := strings.Join(requests, ", "); got != sent {
		p.t.Errorf("%s: sent %q, want %q", step, got, sent)
	}
	if got := strings.Join(all, ", "); got != states {
		p.t.Errorf("%s: the watches are %q, want %q", step, got, states)
	}
	_, isKept := p.of.feeds[p.feed]
	if cause := context.Cause(p.ctx); cause != end || isKept != (end == nil || end == errSilent) {
		p.t.Errorf("%s: the stream has ended: %v, want %v; it is kept: %t", step, cause, end, isKept)
	}
}

// TestStream: what a stream of watches asks etcd for, and what it makes of each response.
func TestStream(t *testing.T) {
	for name, script := range map[string]func(p *played){
		"one at a time": func(p *played) {
			p.open("a")
			p.expect("the first", "open a-a0@7", "a opening here", nil)
			p.open("b", "c")
			p.expect("others", "", "a opening here, b opening here, c opening here", nil)
			p.stop("b")
			p.expect("one leaves", "", "a opening here, b ended, c opening here", nil)
			p.confirm(5)
			p.expect("the first is open", "open c-c0@7", "a following here, b ended, c opening here", nil)
			p.stop("c")
			p.expect("the next leaves", "", "a following here, b ended, c ended", nil)
			p.confirm(6)
			p.expect("etcd has opened it", "forget 6", "a following here, b ended, c ended", nil)
			p.event(5)
			p.event(6)
			if c := p.watches["a"].subject.(*counted); c.changes != 1 {
				p.t.Errorf("%d changes", c.changes)
			}
			p.confirm(7)
			time.Sleep(time.Hour)
			p.expect("nothing opens", "", "a following here, b ended, c ended", nil)
			p.open("d")
			p.stop("a")
			p.expect("the open one leaves", "open d-d0@7, forget 5", "a ended, b ended, c ended, d opening here", nil)
			p.stop("d")
			p.expect("the last leaves", "", "a ended, b ended, c ended, d ended", errUnused)
			if p.of.feed != nil {
				p.t.Error("other watches open on a stream that has ended")
			}
		},
		"the last one that is open leaves": func(p *played) {
			p.open("a")
			p.confirm(5)
			p.stop("a")
			p.expect("in the end", "open a-a0@7, forget 5", "a ended", errUnused)
		},
		"refused": func(p *played) {
			p.open("a")
			p.confirm(5)
			p.open("b", "c", "d")
			p.refuse()
			p.expect("others are open", "open a-a0@7, open b-b0@7", "a following here, b pausing, c opening elsewhere, d opening elsewhere", nil)
			if other := p.watches["c"].feed; p.of.feed != other || p.watches["d"].feed != other || !slices.Equal(other.opening, []*watch{p.watches["c"], p.watches["d"]}) {
				p.t.Error("the others do not open on one stream")
			}
			time.Sleep(time.Hour)
			p.expect("later", "", "a following here, b pausing, c opening elsewhere, d opening elsewhere", nil)
		},
		"all are refused": func(p *played) {
			p.open("a", "b")
			p.refuse()
			p.expect("at once", "open a-a0@7", "a pausing, b opening elsewhere", errUnused)
		},
		"one that has left is refused": func(p *played) {
			p.open("a", "b")
			p.stop("a")
			p.refuse()
			p.expect("at once", "open a-a0@7", "a ended, b opening elsewhere", errUnused)
		},
		"silence": func(p *played) {
			p.open("a", "b")
			time.Sleep(2 * time.Second)
			p.confirm(5)
			time.Sleep(2 * time.Second)
			p.event(5)
			time.Sleep(requestTimeout - 1)
			synctest.Wait()
			p.expect("in time", "open a-a0@7, open b-b0@7", "a following here, b opening here", nil)
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			p.expect("silent", "", "a following here, b opening here", errSilent)
		},
		"silence while none opens": func(p *played) {
			p.open("a")
			p.confirm(5)
			p.event(5)
			time.Sleep(time.Hour)
			p.expect("later", "open a-a0@7", "a following here", nil)
			p.open("b")
			time.Sleep(requestTimeout)
			synctest.Wait()
			p.expect("one opens", "open b-b0@7", "a following here, b opening here", errSilent)
		},
		"the stream ends": func(p *played) {
			p.open("a", "b", "c", "d")
			p.confirm(5)
			p.stop("b")
			why := errors.New("why")
			p.feed.take(arrival{of: p.feed, err: why})
			p.expect("at once", "open a-a0@7, open b-b0@7", "a pausing, b ended, c pausing, d pausing", why)
			p.confirm(6)
			p.event(5)
			p.expect("what comes then", "", "a pausing, b ended, c pausing, d pausing", why)
		},
		"etcd ends a watch": func(p *played) {
			p.open("a", "b")
			p.confirm(5)
			p.confirm(6)
			p.take(&pb.WatchResponse{WatchId: 5, Canceled: true})
			p.expect("one", "open a-a0@7, open b-b0@7", "a pausing, b following here", nil)
			p.take(&pb.WatchResponse{WatchId: 6, Canceled: true})
			p.expect("the last", "", "a pausing, b pausing", errUnused)
		},
		"the revision was compacted": func(p *played) {
			p.open("a", "b")
			p.confirm(5)
			p.confirm(6)
			p.take(&pb.WatchResponse{WatchId: 5, CompactRevision: 1})
			p.expect("one", "open a-a0@7, open b-b0@7, forget 5", "a pausing, b following here", nil)
			p.take(&pb.WatchResponse{WatchId: 6, CompactRevision: 1})
			p.expect("the last", "forget 6", "a pausing, b pausing", errUnused)
		},
		"the connection broke since the list": func(p *played) {
			p.open("a", "b")
			p.of.r.breaks.Add(1)
			p.confirm(5)
			p.expect("one", "open a-a0@7, forget 5, open b-b0@7", "a pausing, b opening here", nil)
			p.confirm(6)
			p.expect("the last", "forget 6", "a pausing, b pausing", errUnused)
		},
		"data is lost": func(p *played) {
			p.open("a", "b")
			p.confirm(5)
			p.watches["b"].at.epoch = 1
			for _, w := range p.watches {
				w.lose(1)
			}
			p.expect("of one", "open a-a0@7, open b-b0@7, forget 5", "a pausing, b opening here", nil)
			p.watches["a"].lose(2)
			p.watches["b"].lose(2)
			p.expect("of the other", "", "a pausing, b pausing", errUnused)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPlayed(t)
				script(p)
				for _, w := range p.watches { // nothing is left in the end
					if w.state != ended {
						w.stop()
					}
					if c := w.subject.(*counted); c.ends != 1 {
						t.Errorf("%s has ended %d times", w.key, c.ends)
					}
				}
				if cause := context.Cause(p.ctx); cause == nil || len(p.of.running) > 0 || cause != errSilent && len(p.of.feeds) > 0 {
					t.Errorf("the stream has ended: %v; %d streams and %d watches are left", cause, len(p.of.feeds), len(p.of.running))
				}
				p.of.takeDue()
				time.Sleep(time.Hour) // no timer makes an ended watch due
				if synctest.Wait(); len(p.of.due) > 0 {
					t.Errorf("%d watches are due", len(p.of.due))
				}
			})
		})
	}
}

// sender is the sending side of a stream.
type sender struct {
	pb.Watch_WatchClient
	got  []int64
	slow time.Duration
	err  error
}

func (s *sender) Send(req *pb.WatchRequest) error {
	time.Sleep(s.slow)
	if s.err != nil {
		return s.err
	}
	s.got = append(s.got, req.GetCancelRequest().WatchId)
	return nil
}

var _ grpc.ClientStream = (*sender)(nil)

// TestSend: requests are sent in their order, one at a time, from before the stream began on, until one can't be sent.
func TestSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &Registry{tasks: tasks.New()}
		f := &feed{of: newWatches(r)}
		s := &sender{slow: time.Second}
		settle := func() { time.Sleep(time.Minute); synctest.Wait() }
		f.forget(1)
		f.forget(2)
		settle()
		f.begin(s)
		synctest.Wait()
		f.forget(3)
		settle()
		if !slices.Equal(s.got, []int64{1, 2, 3}) || f.isSending || len(f.unsent) > 0 {
			t.Errorf("sent %v; sends: %t, %d are left", s.got, f.isSending, len(f.unsent))
		}
		f.forget(4)
		settle()
		s.err = errors.New("ended")
		f.forget(5)
		settle()
		s.err = nil
		f.forget(6)
		settle()
		if !slices.Equal(s.got, []int64{1, 2, 3, 4}) {
			t.Errorf("sent %v", s.got)
		}
		r.tasks.Close()
	})
}

// TestListTurns: no more than maxLists keys are listed at a time, once there is a client. A watch that leaves gives its turn to others.
func TestListTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlayed(t)
		var all []*watch
		for i := range maxLists + 4 {
			s := &counted{wake: time.Now().Add(time.Second)}
			w := &watch{of: p.of, ctx: context.Background(), subject: s, key: fmt.Sprint(i), wake: time.Now()}
			all = append(all, w)
			if w.look(); s.waits != 1 || s.failures != 0 || !w.wake.Equal(s.wake) {
				t.Errorf("watch %d: told %d times that it waits, and of %d failures; due at %v", i, s.waits, s.failures, w.wake)
			}
		}
		listings := func(want ...int) {
			t.Helper()
			p.of.startLists()
			var got []int
			for i, w := range all {
				if w.state == listing {
					if got = append(got, i); w.began.IsZero() {
						t.Errorf("watch %d has no beginning of its list", i)
					}
				}
			}
			if !slices.Equal(got, want) || p.of.listing != len(want) {
				t.Errorf("%v are listed, %d in flight, want %v", got, p.of.listing, want)
			}
		}
		listings()
		if len(p.of.queue) != len(all) || len(p.of.running) != len(all) {
			t.Errorf("%d wait, %d run", len(p.of.queue), len(p.of.running))
		}
		close(p.of.r.ready)
		all[1].stop()
		all[maxLists+1].stop()
		var want []int
		for i := range maxLists + 1 {
			if i != 1 {
				want = append(want, i)
			}
		}
		listings(want...)
		time.Sleep(time.Second)
		for _, i := range []int{2, maxLists + 3} { // one is listed, and one waits
			s := all[i].subject.(*counted)
			s.wake = time.Time{}
			if all[i].look(); s.waits != 2 || s.failures != 0 || !all[i].wake.IsZero() {
				t.Errorf("watch %d: told %d times that it waits, and of %d failures; due at %v", i, s.waits, s.failures, all[i].wake)
			}
		}
		all[0].outcome = &outcome{err: errors.New("why")}
		all[0].look()
		listings(append(want[1:], maxLists+2)...)
		if s := all[0].subject.(*counted); all[0].state != pausing || len(p.of.queue) != 1 || s.failures != 1 {
			t.Errorf("state %d after %d failures, %d wait", all[0].state, s.failures, len(p.of.queue))
		}
		for _, w := range all {
			if w.state != ended {
				w.stop()
			}
		}
	})
}

// TestWatchPauses: the pauses before lists are longer each time, unless the watch has worked for longer than a pause and a list may take.
func TestWatchPauses(t *testing.T) {
	const enough = maxRetry + requestTimeout
	for worked, isShort := range map[time.Duration]bool{0: false, enough: false, enough + 1: true} {
		synctest.Test(t, func(t *testing.T) {
			p := newPlayed(t)
			w := &watch{of: p.of, ctx: context.Background(), subject: new(counted), state: opening, began: time.Now()}
			for range 10 {
				w.pause.duration()
			}
			time.Sleep(worked)
			w.restart(errBroken)
			if pause := time.Until(w.wake); pause <= 0 || (pause <= minRetry) != isShort {
				t.Errorf("after %v the pause is %v", worked, pause)
			}
			if w.look(); w.state != pausing {
				t.Errorf("after %v the pause is not waited for", worked)
			}
			w.sleep(time.Time{})
			time.Sleep(time.Hour)
			if synctest.Wait(); len(p.of.due) > 0 {
				t.Error("the watch is due")
			}
			w.sleep(time.Now().Add(time.Second))
			time.Sleep(time.Second)
			synctest.Wait()
			w.setDue()
			if len(p.of.due) != 1 || len(p.of.takeDue()) != 1 || len(p.of.takeDue()) != 0 {
				t.Error("the watch is not due once")
			}
			w.setDue()
			if len(p.of.takeDue()) != 1 {
				t.Error("the watch is not due again")
			}
		})
	}
}
