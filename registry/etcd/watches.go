package etcd

import (
	"context"
	"slices"
	"sync"
	"time"
)

// watches are the watches of a Registry. A Registry may have thousands, so one goroutine looks at all of them. Only the requests
// that list keys, and the streams, have goroutines of their own.
type watches struct {
	r        *Registry
	start    sync.Once     // the goroutine starts with the first watch
	wake     chan struct{} // has an element unless due is certainly empty
	arrivals chan arrival  // from the streams; without a buffer, so that a stream waits for the goroutine

	mu  sync.Mutex
	due []*watch // those that are to be looked at, each once

	// The goroutine owns the rest.
	running map[*watch]struct{}
	queue   []*watch           // those that wait for their turn to list
	listing int                // lists in flight
	feed    *feed              // on which the next watch opens; nil means none
	feeds   map[*feed]struct{} // that have not ended
	mark    mark               // of the present epoch
}

// maxLists limits the concurrent lists: while etcd does not respond, the client retries
// each of them many times a second.
const maxLists = 32

// askEvery is how often streams are asked for a sign of life. With maxAsked, a member that is silent is noticed within six seconds.
const askEvery = 2 * time.Second

func newWatches(r *Registry) *watches {
	return &watches{r: r, wake: make(chan struct{}, 1), arrivals: make(chan arrival), running: make(map[*watch]struct{}), feeds: make(map[*feed]struct{})}
}

// add starts a watch of the keys from key to before end, or of key alone if end is empty. The watch ends with ctx, which
// cancel ends.
func (o *watches) add(ctx context.Context, cancel context.CancelFunc, s subject, key, end string) (stop func()) {
	w := &watch{of: o, ctx: ctx, subject: s, key: key, end: end, wake: time.Now()}
	o.start.Do(func() { o.r.tasks.Go(o.run) })
	w.setDue()
	return func() {
		cancel()
		w.setDue()
	}
}

// run looks at watches for which there is something new.
func (o *watches) run() {
	beat := time.NewTicker(askEvery)
	defer beat.Stop()
	o.mark = o.r.position.mark()
	for ready := o.r.ready; ; o.startLists() {
		select {
		case <-o.r.tasks.Context().Done():
			for w := range o.running {
				w.stop()
			}
			return
		case <-ready:
			ready = nil
		case <-o.wake:
			for _, w := range o.takeDue() {
				w.look()
			}
		case <-beat.C:
			for f := range o.feeds {
				f.ask()
			}
		case a := <-o.arrivals:
			a.of.take(a)
		case <-o.mark.lost:
			o.mark = o.r.position.mark()
			for w := range o.running {
				w.lose(o.mark.epoch)
			}
		}
	}
}

func (o *watches) takeDue() (due []*watch) {
	o.mu.Lock()
	defer o.mu.Unlock()
	due, o.due = o.due, nil
	for _, w := range due {
		w.isDue = false
	}
	return due
}

// enqueue makes a watch list when it is its turn.
func (o *watches) enqueue(w *watch) { o.queue = append(o.queue, w) }

// dequeue removes a watch that does not want to list any more.
func (o *watches) dequeue(w *watch) {
	i := slices.Index(o.queue, w)
	o.queue = slices.Delete(o.queue, i, i+1)
}

// startLists starts the lists whose turn has come.
func (o *watches) startLists() {
	for len(o.queue) > 0 && o.listing < maxLists && o.r.isReady() {
		w := o.queue[0]
		o.queue[0] = nil
		o.queue = o.queue[1:]
		w.become(listing)
		w.began = time.Now()
		o.listing++
		o.r.tasks.Go(w.list)
	}
}

// open opens a watch in etcd. The client must be ready.
func (o *watches) open(w *watch) {
	if o.feed == nil {
		o.feed = newFeed(o)
	}
	w.feed = o.feed
	w.feed.add(w)
}

// leave makes later watches open on another stream than f.
func (o *watches) leave(f *feed) {
	if o.feed == f {
		o.feed = nil
	}
}
