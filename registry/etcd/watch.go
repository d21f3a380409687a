package etcd

import (
	"context"
	"fmt"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/remora-proxy/remora/registry"
)

// subject is what a watch keeps up to date: a service, or the value of a key. Its methods are called on the goroutine of watches.
type subject interface {
	// unlisted is called before each list: when the watch begins to wait for its turn, at the time that the last call returned,
	// and after a list has failed. wake is when it is to be called again at the latest; zero means never.
	unlisted(now time.Time, hasFailed bool) (wake time.Time)

	// listed takes the keys, which a request at m has read. last is what it returned for the list before, or the zero mark. The
	// result is the mark after the response.
	listed(m, last mark, resp *clientv3.GetResponse) (after mark)

	changed(resp *pb.WatchResponse) // takes what has changed since

	// settle delivers what follows from the list and the changes. wake is when it is to be called again at the latest; zero means
	// never. lacksList reports whether the keys must be listed again, which it does not right after a list.
	settle(now time.Time) (wake time.Time, lacksList bool)

	end()
}

// watchState is what a watch does.
//
//	pausing ──▶ queued ──▶ listing ──▶ opening ──▶ following
//	   ▲                      └───────────┴────────────┘
//
// Every state leads to ended.
type watchState uint8

const (
	pausing   watchState = iota // it waits before it lists again
	queued                      // it waits for its turn to list
	listing                     // a request lists its keys
	opening                     // etcd is asked for changes since the list
	following                   // etcd sends changes
	ended

	numWatchStates = iota
)

var watchEdges = [numWatchStates][numWatchStates]bool{
	pausing:   {queued: true, ended: true},
	queued:    {listing: true, ended: true},
	listing:   {opening: true, pausing: true, ended: true},
	opening:   {following: true, pausing: true, ended: true},
	following: {pausing: true, ended: true},
}

// watch follows keys of etcd for one caller: it lists them, has etcd send changes, and lists them again when it breaks. The
// goroutine of watches owns all fields without another remark.
type watch struct {
	of       *watches
	ctx      context.Context // ends with stop and with the Registry
	subject  subject
	key, end string // the keys from key to before end; an empty end means key alone

	// Guarded by of.mu.
	isDue   bool     // it is in of.due
	outcome *outcome // of the list; nil once it was taken

	state  watchState
	wake   time.Time   // when there is something to do without an event; zero means never
	timer  *time.Timer // makes the watch due; nil before the first need
	pause  retry       // before the next list
	began  time.Time   // when the last list began
	at     mark        // after the last list; the zero mark means none
	from   int64       // first revision of which the subject has not had the changes
	breaks uint64      // connections to etcd that had ended before the last list
	feed   *feed       // that the watch opens on, or follows; nil in the other states
	number int64       // by which etcd knows it, while it follows
}

// outcome is the result of a list.
type outcome struct {
	breaks uint64 // connections to etcd that had ended before
	at     mark   // before
	resp   *clientv3.GetResponse
	err    error
}

func (w *watch) become(next watchState) {
	if !watchEdges[w.state][next] {
		panic(fmt.Sprintf("registry/etcd: watch in state %d can't become %d", w.state, next))
	}
	w.state = next
}

// setDue has the goroutine of watches look at the watch.
func (w *watch) setDue() {
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	if w.isDue {
		return
	}
	w.isDue = true
	w.of.due = append(w.of.due, w)
	select {
	case w.of.wake <- struct{}{}:
	default:
	}
}

// list is a task: it lists the keys.
func (w *watch) list() {
	r := w.of.r
	ctx, cancel := context.WithTimeout(w.ctx, requestTimeout)
	defer cancel()
	got := &outcome{breaks: r.breaks.Load(), at: r.position.mark()}
	got.resp, got.err = r.client.Get(ctx, w.key, clientv3.WithRange(w.end), clientv3.WithLimit(registry.MaxListed))
	w.of.mu.Lock()
	w.outcome = got
	w.of.mu.Unlock()
	w.setDue()
}

// take returns the outcome of a list that has come since the last look, or nil.
func (w *watch) take() (got *outcome) {
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	got, w.outcome = w.outcome, nil
	return got
}

// look takes what is new, and does what it is time for.
func (w *watch) look() {
	got := w.take()
	if got != nil {
		w.of.listing--
	}
	now := time.Now()
	switch {
	case w.state == ended:
	case w.ctx.Err() != nil:
		w.stop()
	case got != nil:
		w.listed(got, now)
	case !w.wake.IsZero() && !now.Before(w.wake):
		w.act(now)
	}
}

// act does what it is time for.
func (w *watch) act(now time.Time) {
	switch w.state {
	case pausing:
		w.of.running[w] = struct{}{}
		w.become(queued)
		w.of.enqueue(w)
		w.sleep(w.subject.unlisted(now, false))
	case queued, listing:
		w.sleep(w.subject.unlisted(now, false))
	default:
		w.settle(now)
	}
}

// settle delivers what is new, and lists again if the subject lacks a list.
func (w *watch) settle(now time.Time) {
	wake, lacksList := w.subject.settle(now)
	w.sleep(wake)
	if lacksList {
		w.restart(errRoom)
	}
}

// sleep makes the watch due at a time; zero means never.
func (w *watch) sleep(until time.Time) {
	w.wake = until
	switch d := time.Until(until); {
	case until.IsZero():
		if w.timer != nil {
			w.timer.Stop()
		}
	case w.timer == nil:
		w.timer = time.AfterFunc(d, w.setDue)
	default:
		w.timer.Reset(d)
	}
}

// listed takes the outcome of a list.
func (w *watch) listed(got *outcome, now time.Time) {
	err := got.err
	if err == nil && w.of.r.position.doubts(got.at, got.resp.Header) {
		err = errBehind
	}
	if err != nil {
		w.subject.unlisted(now, true)
		w.restart(err)
		return
	}
	w.at = w.subject.listed(got.at, w.at, got.resp)
	w.breaks, w.from = got.breaks, got.resp.Header.Revision+1
	w.become(opening)
	w.settle(now)
	w.of.open(w)
}

// opened is called when etcd has confirmed the watch.
func (w *watch) opened() {
	// The server behind a new connection may be past the revision of the list, but without its data.
	if w.of.r.breaks.Load() != w.breaks {
		w.restart(errBroken)
		return
	}
	w.become(following)
}

// changed takes a response of etcd to the watch.
func (w *watch) changed(resp *pb.WatchResponse) {
	w.of.r.position.saw(w.at.epoch, positionOf(resp.Header))
	w.dropOld(resp)
	w.subject.changed(resp)
	w.settle(time.Now())
}

// dropOld removes events that are older than the list, or than earlier events. Before etcd 3.6.2, a member that was behind when the watch
// opened there sends such events once it has got a snapshot of the leader.
func (w *watch) dropOld(resp *pb.WatchResponse) {
	resp.Events = slices.DeleteFunc(resp.Events, func(ev *mvccpb.Event) bool { return ev.Kv.ModRevision < w.from })
	if n := len(resp.Events); n > 0 { // all events of a revision are in one response
		w.from = resp.Events[n-1].Kv.ModRevision + 1
	}
}

// lose ends what the watch has of an etcd that has lost its data since, before an epoch.
func (w *watch) lose(epoch uint64) {
	if w.feed != nil && w.at.epoch != epoch {
		w.restart(errLost)
	}
}

// broke is called when etcd, or its connection, has ended the watch.
func (w *watch) broke(reason error) {
	w.feed = nil
	w.restart(reason)
}

// restart lists again after a pause, which is longer each time unless the watch has worked for a while.
func (w *watch) restart(reason error) {
	w.leave()
	now := time.Now()
	if now.Sub(w.began) > maxRetry+requestTimeout {
		w.pause.reset()
	}
	w.of.r.log.Debug("watch of keys restarts", "key", w.key, "reason", reason)
	w.become(pausing)
	w.sleep(now.Add(w.pause.duration()))
}

// leave leaves the stream.
func (w *watch) leave() {
	if f := w.feed; f != nil {
		w.feed = nil
		f.remove(w)
	}
}

// stop ends the watch.
func (w *watch) stop() {
	if w.state == queued {
		w.of.dequeue(w)
	}
	w.leave()
	w.become(ended)
	w.sleep(time.Time{})
	delete(w.of.running, w)
	w.subject.end()
}
