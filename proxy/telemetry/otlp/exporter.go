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
	batchRecords = 256         // most records in one export, of about 500 KiB then
	batchDelay   = time.Second // how long the first record of a batch waits for others
)

// Options are the settings of an Exporter that do not change.
type Options struct {
	Node    string // service.instance.id of the spans' resource
	Version string // of this program
	Logger  *slog.Logger
}

// Exporter sends spans. It is off until Configure gives it an endpoint.
type Exporter struct {
	opt      Options
	exported atomic.Uint64 // spans
	dropped  atomic.Uint64 // spans for which the queue had no room
	lost     atomic.Uint64 // spans that the receiver did not accept

	mu     sync.Mutex
	queued queue
	to     *receiver

	wake    chan struct{} // has room for one: there is a first record, or a full batch
	begin   sync.Once
	closing chan struct{}
	done    chan struct{}
	ctx     context.Context // context of exports
	cancel  context.CancelFunc
	failing bool // reports whether the last export failed; only run uses it
}

// New returns an Exporter that is off.
func New(o Options) *Exporter {
	e := &Exporter{opt: o, wake: make(chan struct{}, 1), closing: make(chan struct{}), done: make(chan struct{})}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	return e
}

// Configure applies c from now on. Queued records go to the new endpoint. If c
// switches exports off, they go to the previous one.
func (e *Exporter) Configure(c *config.Tracing) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if c.Endpoint == "" {
		e.queued.room = 0
		return
	}
	if e.to != nil {
		e.to.retire()
	}
	e.queued.resize(c.Queue)
	e.to = newReceiver(c)
	e.begin.Do(func() { go e.run() })
}

// Put implements trace.Sink. It may wait for the lock, but no longer than copying
// the pointers of a batch takes.
func (e *Exporter) Put(r *trace.Record) {
	e.mu.Lock()
	queued := e.queued.put(r)
	due := e.queued.n == 1 || e.full()
	e.mu.Unlock()
	if !queued {
		e.dropped.Add(uint64(r.Spans()))
		return
	}
	// Only the first and the last record of a batch wake the goroutine. Each time
	// costs the loop a system call, and the process a thread.
	if !due {
		return
	}
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// full reports whether the queue has a full batch, or no more room. It needs the lock.
func (e *Exporter) full() bool { return e.queued.n >= min(batchRecords, e.queued.room) }

// Stats counts spans since the start.
type Stats struct {
	Exported uint64 // accepted by the receiver
	Full     uint64 // dropped because the queue was full
	Lost     uint64 // dropped because the receiver did not accept them
}

// Stats returns the counters. It may be called from any goroutine.
func (e *Exporter) Stats() Stats {
	return Stats{Exported: e.exported.Load(), Full: e.dropped.Load(), Lost: e.lost.Load()}
}

// Close sends the queued records, without retries and until ctx is done, and stops
// the Exporter. It must be called only once. Records that are put later are dropped.
func (e *Exporter) Close(ctx context.Context) error {
	e.mu.Lock()
	e.queued.room = 0
	e.mu.Unlock()
	close(e.closing)
	e.begin.Do(func() { close(e.done) }) // if run was never started
	defer context.AfterFunc(ctx, e.cancel)()
	<-e.done
	return ctx.Err()
}

func (e *Exporter) run() {
	defer close(e.done)
	for open := true; open; {
		select {
		case <-e.wake:
			e.awaitBatch()
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

// awaitBatch waits until a batch is full or old enough, or the Exporter closes.
func (e *Exporter) awaitBatch() {
	t := time.NewTimer(batchDelay)
	defer t.Stop()
	for {
		e.mu.Lock()
		full := e.full()
		e.mu.Unlock()
		if full {
			return
		}
		select {
		case <-e.wake:
		case <-t.C:
			return
		case <-e.closing:
			return
		}
	}
}

func (e *Exporter) take() ([]*trace.Record, *receiver) {
	batch := make([]*trace.Record, batchRecords)
	e.mu.Lock()
	defer e.mu.Unlock()
	return batch[:e.queued.take(batch)], e.to
}

func (e *Exporter) export(batch []*trace.Record, to *receiver) {
	spans := uint64(0)
	for _, r := range batch {
		spans += uint64(r.Spans())
	}
	body, err := proto.Marshal(message(batch, &e.opt, to.service))
	var rejected uint64
	if err == nil {
		rejected, err = to.send(e.ctx, e.closing, body)
	}
	if err != nil {
		rejected = spans
	}
	rejected = min(rejected, spans)
	e.exported.Add(spans - rejected)
	e.lost.Add(rejected)
	e.logResult(err)
}

// logResult logs the first failure after a success, and the first success after a failure.
func (e *Exporter) logResult(err error) {
	switch {
	case err != nil && !e.failing:
		e.opt.Logger.Warn("spans are not exported", "error", err)
	case err == nil && e.failing:
		e.opt.Logger.Info("spans are exported again")
	}
	e.failing = err != nil
}
