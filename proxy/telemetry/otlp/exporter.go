package otlp

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/telemetry/trace"
)

const (
	// batchRecords is how many requests' spans go in one export at most: some
	// 500 KiB.
	batchRecords = 256

	// batchDelay is how long the first record of a batch waits for others.
	batchDelay = time.Second
)

// Options are what does not change while an Exporter lives.
type Options struct {
	Node    string // service.instance.id of the spans
	Version string // of this program
	Logger  *slog.Logger
}

// Exporter sends spans. Until Configure gives it an endpoint it does nothing.
type Exporter struct {
	opt      Options
	exported atomic.Uint64 // spans
	dropped  atomic.Uint64 // spans for which there was no room
	lost     atomic.Uint64 // spans that the receiver did not take

	mu      sync.Mutex
	waiting queue
	to      *receiver

	wake    chan struct{} // holds one: there is a first record, or a batch
	begin   sync.Once
	closing chan struct{}
	done    chan struct{}
	ctx     context.Context // of exports
	cancel  context.CancelFunc
	failing bool // the last export failed; of run alone
}

// New makes an Exporter that is off.
func New(o Options) *Exporter {
	e := &Exporter{opt: o, wake: make(chan struct{}, 1), closing: make(chan struct{}), done: make(chan struct{})}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	return e
}

// Configure has the Exporter work by c from now on. What waits goes to the new
// endpoint, or, when c is off, to the one before.
func (e *Exporter) Configure(c *config.Tracing) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if c.Endpoint == "" {
		e.waiting.room = 0
		return
	}
	if e.to != nil {
		e.to.retire()
	}
	e.waiting.resize(c.Queue)
	e.to = newReceiver(c)
	e.begin.Do(func() { go e.run() })
}

// Put implements trace.Sink. The lock is held for no longer than it takes to copy
// the pointers of a batch.
func (e *Exporter) Put(r *trace.Record) {
	e.mu.Lock()
	taken := e.waiting.put(r)
	due := e.waiting.n == 1 || e.full()
	e.mu.Unlock()
	if !taken {
		e.dropped.Add(uint64(r.Spans()))
		return
	}
	// Those between the first and the last of a batch wake nobody: that takes the
	// loop a system call, and the process a thread, each time.
	if !due {
		return
	}
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// full tells whether a batch waits, or all that there is room for. The lock is held.
func (e *Exporter) full() bool { return e.waiting.n >= min(batchRecords, e.waiting.room) }

// Stats counts spans since the start.
type Stats struct {
	Exported uint64 // taken by the receiver
	Full     uint64 // dropped: too many were waiting
	Lost     uint64 // dropped: the receiver did not take them
}

// Stats may be called from any goroutine.
func (e *Exporter) Stats() Stats {
	return Stats{Exported: e.exported.Load(), Full: e.dropped.Load(), Lost: e.lost.Load()}
}

// Close sends what waits, once and without retries, until ctx is done, and ends the
// Exporter. It is called once; what is put later is dropped.
func (e *Exporter) Close(ctx context.Context) error {
	e.mu.Lock()
	e.waiting.room = 0
	e.mu.Unlock()
	close(e.closing)
	e.begin.Do(func() { close(e.done) }) // it never ran
	stop := context.AfterFunc(ctx, e.cancel)
	defer stop()
	<-e.done
	e.cancel()
	return ctx.Err()
}

// run sends batches until Close.
func (e *Exporter) run() {
	defer close(e.done)
	for open := true; open; {
		select {
		case <-e.wake:
			open = e.linger()
		case <-e.closing:
			open = false
		}
		for batch, to := e.take(); len(batch) > 0; batch, to = e.take() {
			e.export(batch, to)
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.to.retire()
}

// linger lets a batch fill up. It tells whether the Exporter goes on.
func (e *Exporter) linger() bool {
	t := time.NewTimer(batchDelay)
	defer t.Stop()
	for {
		e.mu.Lock()
		full := e.full()
		e.mu.Unlock()
		if full {
			return true
		}
		select {
		case <-e.wake:
		case <-t.C:
			return true
		case <-e.closing:
			return false
		}
	}
}

// take takes the oldest records that wait.
func (e *Exporter) take() ([]*trace.Record, *receiver) {
	batch := make([]*trace.Record, batchRecords)
	e.mu.Lock()
	defer e.mu.Unlock()
	return batch[:e.waiting.take(batch)], e.to
}

// export sends a batch and counts what became of it.
func (e *Exporter) export(batch []*trace.Record, to *receiver) {
	spans := uint64(0)
	for _, r := range batch {
		spans += uint64(r.Spans())
	}
	body, err := proto.Marshal(message(batch, &e.opt, to.service))
	rejected := uint64(0)
	if err == nil {
		rejected, err = to.send(e.ctx, e.closing, body)
	}
	if err != nil {
		rejected = spans
	}
	rejected = min(rejected, spans)
	e.exported.Add(spans - rejected)
	e.lost.Add(rejected)
	e.tell(err)
}

// tell logs the first failure after a success, and the first success after that.
func (e *Exporter) tell(err error) {
	switch {
	case err != nil && !e.failing:
		e.opt.Logger.Warn("spans are not exported", "error", err)
	case err == nil && e.failing:
		e.opt.Logger.Info("spans are exported again")
	}
	e.failing = err != nil
}
