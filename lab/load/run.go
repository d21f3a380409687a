package load

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/remora-proxy/remora/lab/precise"
)

// A request is one that was due; its answer is awaited on a conn.
type request struct {
	due     time.Time // intended send time
	nonce   uint64
	counted bool // not of the warm-up
}

// A generator is one run.
type generator struct {
	opts  Options
	pools []*pool // one for each target
	rec   recorder

	ctx     context.Context
	sent    atomic.Int64
	pending sync.WaitGroup // requests begun and not yet accounted for
	readers sync.WaitGroup // goroutines of connections

	// Of a closed loop: when counting begins, when it ends, and how many requests
	// are still owed before it may.
	from, until time.Time
	owed        atomic.Int64
}

// Run makes the load that opts ask for and returns when each request has been
// answered or has failed. When ctx ends early it stops and returns what it has
// with ctx's error.
func Run(ctx context.Context, opts Options) (*Result, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	g := &generator{opts: opts, ctx: ctx, rec: newRecorder(&opts)}
	for i, s := range opts.Targets {
		t, err := parseTarget(s)
		if err != nil {
			return nil, err
		}
		g.pools = append(g.pools, newPool(g, t, share(opts.MaxConnections, len(opts.Targets), i)))
	}
	defer g.close()
	// Ends reads and writes under way; their requests are then accounted for.
	defer context.AfterFunc(ctx, g.close)()
	if err := g.connect(); err != nil {
		return nil, err
	}
	stopProgress := g.progress()
	if opts.Closed {
		g.closedLoop()
	} else {
		g.openLoop()
	}
	g.pending.Wait()
	stopProgress()
	err = ctx.Err()
	g.close()
	g.readers.Wait()
	return g.result(), err
}

// share is the i-th of n near-equal parts of total.
func share(total, n, i int) int {
	part := total / n
	if i < total%n {
		part++
	}
	return part
}

// connect opens the initial connections.
func (g *generator) connect() error {
	errs := make(chan error, g.opts.Connections)
	for i := range g.opts.Connections {
		p := g.pools[i%len(g.pools)]
		go func() {
			c, err := p.dial()
			if err == nil {
				p.add(c)
			}
			errs <- err
		}()
	}
	var first error
	for range g.opts.Connections {
		if err := <-errs; err != nil && first == nil {
			first = err
		}
	}
	if first != nil {
		return fmt.Errorf("load: connect: %w", first)
	}
	return nil
}

// openLoop sends each request at its time, whatever became of those before.
func (g *generator) openLoop() {
	o := g.opts
	warm := int(o.Rate * o.Warmup.Seconds())
	total := warm + int(o.Rate*o.Duration.Seconds()+0.5)
	rng := rand.New(rand.NewPCG(o.Seed, 0))
	gap := float64(time.Second) / o.Rate
	start := time.Now().Add(5 * time.Millisecond)
	var offset float64
	for i := range total {
		due := start.Add(time.Duration(offset))
		if i == warm {
			g.rec.begin(due)
		}
		precise.SleepUntil(due)
		if g.ctx.Err() != nil {
			return
		}
		g.begin(g.pools[i%len(g.pools)], request{due: due, nonce: rng.Uint64(), counted: i >= warm})
		if o.Poisson {
			offset += gap * rng.ExpFloat64()
		} else {
			offset = gap * float64(i+1) // no sum of rounding errors
		}
	}
}

// begin makes g wait for r's end, and gives r to p.
func (g *generator) begin(p *pool, r request) {
	g.pending.Add(1)
	g.sent.Add(1)
	p.dispatch(r)
}

// closedLoop gives each connection a first request; each end of one then brings
// about the next, until the time is up.
func (g *generator) closedLoop() {
	now := time.Now()
	g.from = now.Add(g.opts.Warmup)
	g.until = g.from.Add(g.opts.Duration)
	g.owed.Store(g.opts.Requests)
	g.rec.begin(g.from)
	for i := range g.opts.Connections {
		g.next(g.pools[i%len(g.pools)])
	}
}

// next starts the next request of a closed loop.
func (g *generator) next(p *pool) {
	now := time.Now()
	counted := !now.Before(g.from)
	owed := counted && g.owed.Add(-1) >= 0
	if (owed || now.Before(g.until)) && g.ctx.Err() == nil {
		g.begin(p, request{due: now, nonce: rand.Uint64(), counted: counted})
	}
}

// done accounts for r, which ended at now.
func (g *generator) done(p *pool, r request, now time.Time, end outcome) {
	if r.counted {
		g.rec.end(now, now.Sub(r.due), end)
	}
	if g.opts.Closed {
		if end.kind == ErrConnect {
			precise.Sleep(10 * time.Millisecond) // a dead server must not make us spin
		}
		g.next(p)
	}
	g.pending.Done() // last: a closed loop's next one is pending by now
}

// progress reports to opts.Progress until the function it returns is called.
func (g *generator) progress() (stop func()) {
	if g.opts.Progress == nil {
		return func() {}
	}
	quit := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				return
			case now := <-tick.C:
				g.opts.Progress(g.rec.look(now))
			}
		}
	})
	return func() { close(quit); wg.Wait() }
}

func (g *generator) close() {
	for _, p := range g.pools {
		p.close()
	}
}

func (g *generator) result() *Result {
	r := g.rec.result()
	r.Sent = g.sent.Load()
	for _, p := range g.pools {
		r.Connections += p.dialled
	}
	return r
}
