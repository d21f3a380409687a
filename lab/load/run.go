package load

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/remora-proxy/remora/lab/precise"
)

// target is where requests go.
type target interface {
	connect() error     // opens a connection
	dispatch(r request) // sends r, and calls done at its end
	connections() int   // opened in all
	close()             // may be called again
}

type request struct {
	due     time.Time // intended send time
	sent    time.Time // zero until it is written
	nonce   uint64
	counted bool // it is not part of the warm-up
	index   int  // as Options.Vary counts; -1 in a closed loop
	varied  []byte
}

// generator is one run.
type generator struct {
	opts    Options
	targets []target // one for each of opts.Targets
	rec     recorder

	ctx     context.Context
	sent    atomic.Int64
	pending sync.WaitGroup // requests in flight
	readers sync.WaitGroup // goroutines of connections

	// Of a closed loop: when counting begins, when it ends, and how many requests are missing
	// to the minimum.
	from, until time.Time
	owed        atomic.Int64
}

// Run makes the load of opts. It returns once each request has its response or has failed. If
// ctx ends early it stops, and returns a partial result with the error of ctx.
func Run(ctx context.Context, opts Options) (*Result, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	g := &generator{opts: opts, ctx: ctx}
	g.rec = recorder{log: opts.Log, each: opts.Each, keep: opts.Samples, sum: newResult()}
	for i, name := range opts.Targets {
		// Nearly equal shares of all connections, the larger ones first.
		share := (opts.MaxConnections + len(opts.Targets) - 1 - i) / len(opts.Targets)
		t, err := newTarget(g, name, share)
		if err != nil {
			return nil, err
		}
		g.targets = append(g.targets, t)
	}
	defer g.close()
	// Closing ends reads and writes in progress, whose requests then fail.
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
	r := g.rec.result()
	r.Sent = g.sent.Load()
	for _, t := range g.targets {
		r.Connections += t.connections()
	}
	return r, err
}

func newTarget(g *generator, name string, limit int) (target, error) {
	u, err := url.Parse(name)
	switch {
	case err != nil || u.Host == "" || u.User != nil:
	case u.Scheme == "http", u.Scheme == "https" && g.opts.TLS != nil:
		return newPool(g, u, limit), nil
	case u.Scheme == "grpc" && u.Port() != "" && u.RawQuery == "" && g.opts.Vary == nil:
		return newCalls(g, u), nil
	}
	return nil, fmt.Errorf("load: target %q: want http[s]://host[:port]/path or grpc://host:port[/service/method]", name)
}

func (g *generator) connect() error {
	errs := make(chan error, g.opts.Connections)
	for i := range g.opts.Connections {
		t := g.targets[i%len(g.targets)]
		go func() { errs <- t.connect() }()
	}
	var err error
	for range g.opts.Connections {
		err = cmp.Or(err, <-errs)
	}
	if err != nil {
		return fmt.Errorf("load: connect: %w", err)
	}
	return nil
}

// openLoop sends each request at its time, whatever became of earlier ones.
func (g *generator) openLoop() {
	o := g.opts
	warm := int(o.Rate * o.Warmup.Seconds())
	total := warm + int(o.Rate*o.Duration.Seconds()+0.5)
	rng := rand.New(rand.NewPCG(o.Seed, 0))
	gap := float64(time.Second) / o.Rate * float64(o.FanOut)
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
		r := request{due: due, nonce: rng.Uint64(), counted: i >= warm, index: i}
		if o.Vary != nil {
			r.varied = o.Vary(nil, i)
		}
		g.begin(g.targets[i%len(g.targets)], r)
		switch {
		case (i+1)%o.FanOut != 0: // the next one is due at once
		case o.Poisson:
			offset += gap * rng.ExpFloat64()
		default:
			offset = gap * float64((i+1)/o.FanOut) // no sum of rounding errors
		}
	}
}

// begin dispatches r. Run waits for its end.
func (g *generator) begin(t target, r request) {
	g.pending.Add(1)
	g.sent.Add(1)
	t.dispatch(r)
}

// closedLoop starts a first request for each connection. The end of each request starts the
// next one, until the time is over.
func (g *generator) closedLoop() {
	now := time.Now()
	g.from = now.Add(g.opts.Warmup)
	g.until = g.from.Add(g.opts.Duration)
	g.owed.Store(g.opts.Requests)
	g.rec.begin(g.from)
	for i := range g.opts.Connections {
		g.next(g.targets[i%len(g.targets)])
	}
}

func (g *generator) next(t target) {
	now := time.Now()
	counted := !now.Before(g.from)
	owed := counted && g.owed.Add(-1) >= 0
	if (owed || now.Before(g.until)) && g.ctx.Err() == nil {
		g.begin(t, request{due: now, nonce: rand.Uint64(), counted: counted, index: -1})
	}
}

// done records r, which ended at now.
func (g *generator) done(t target, r request, now time.Time, end outcome) {
	if r.counted {
		g.rec.end(r, now, end)
	}
	if g.opts.Closed {
		if end.kind == ErrConnect {
			precise.Sleep(10 * time.Millisecond) // a dead server must not cause a busy loop
		}
		g.next(t)
	}
	g.pending.Done() // last: the next request of a closed loop is pending already
}

// progress calls opts.Progress regularly until stop is called.
func (g *generator) progress() (stop func()) {
	if g.opts.Progress == nil {
		return func() {}
	}
	quit := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.Tick(200 * time.Millisecond)
		for {
			select {
			case <-quit:
				return
			case now := <-tick:
				g.opts.Progress(g.rec.look(now))
			}
		}
	})
	return func() { close(quit); wg.Wait() }
}

func (g *generator) close() {
	for _, t := range g.targets {
		t.close()
	}
}
