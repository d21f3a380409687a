package proxy

// Worker is one loop's part of the process: its view of the services, the routes,
// and the sessions accepted on it. A request lives on one worker from its first byte
// to its last.
type Worker struct {
	proc  *Process
	shard *shard
	host  host

	accept   map[string]acceptor // by the protocol's name
	speaks   connectors
	requests *pool
	router   router

	generation uint64 // of the configuration in use
	services   map[string]*service
	former     map[string]*service // that the latest change has removed
}

// NewWorker adds a worker for loop to p. All workers are added before the first
// connection, on one goroutine; the loop's own callbacks use it from then on.
// seed feeds the picks of endpoints.
func NewWorker(p *Process, loop Loop, log Logger, seed uint64) *Worker {
	w := &Worker{
		proc: p, shard: newShard(&p.shared, len(p.workers), loop, log, seed),
		accept: make(map[string]acceptor), speaks: make(connectors),
	}
	w.requests = newPool(w.shard)
	w.router.rnd = w.shard.rnd
	w.host = host{shard: w.shard, pool: w.requests, router: &w.router, streamer: p.streams, leaser: w}
	w.shard.overMark.Do = w.shedAll
	for _, entry := range protocols {
		if entry.downstream != nil {
			w.accept[entry.name] = entry.downstream(&w.host)
		}
		w.speaks[entry.name] = connection{
			connector: entry.upstream(w.shard, w.requests), streams: entry.streams, opaque: entry.opaque,
		}
	}
	w.speaks[""] = w.speaks[fallbackProtocol]
	g := p.current.Load()
	w.prepare(g)
	w.switchTo(g, &Generation{})
	p.workers = append(p.workers, w)
	return w
}
