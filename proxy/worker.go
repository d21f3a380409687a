package proxy

import (
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/shard"
)

// Worker is one loop's part of the process: its view of the services, the routes,
// and the sessions accepted on it. A request lives on one worker from its first byte
// to its last.
type Worker struct {
	proc  *Process
	shard *shard.Shard
	host  downstream.Host

	accept   map[string]downstream.Acceptor // by the protocol's name
	speaks   exchange.Connectors
	requests *exchange.Pool
	router   exchange.Router

	generation uint64 // of the configuration in use
	services   map[string]*exchange.Service
	removed    map[string]*exchange.Service // that the latest change has removed
}

// NewWorker adds a worker for loop to p. All workers are added before the first
// connection, on one goroutine; the loop's own callbacks use it from then on.
// seed feeds the picks of endpoints.
func NewWorker(p *Process, loop loop.Loop, log shard.Logger, seed uint64) *Worker {
	w := &Worker{
		proc: p, shard: shard.New(&p.shared, len(p.workers), loop, log, seed),
		accept: make(map[string]downstream.Acceptor), speaks: make(exchange.Connectors),
	}
	w.requests = exchange.NewPool(w.shard)
	w.router.Rand = w.shard.Rand
	w.host = downstream.Host{Shard: w.shard, Pool: w.requests, Router: &w.router, Streams: p.streams, Leaser: w}
	w.shard.Shedding.Do = w.shedAll
	for _, entry := range protocols {
		if entry.downstream != nil {
			w.accept[entry.name] = entry.downstream(&w.host)
		}
		w.speaks[entry.name] = exchange.Connection{
			Connector: entry.upstream(w.shard, w.requests), Streams: entry.streams, Opaque: entry.opaque,
		}
	}
	w.speaks[""] = w.speaks[fallbackProtocol]
	g := p.current.Load()
	w.prepare(g)
	w.switchTo(g, &Generation{})
	p.workers = append(p.workers, w)
	return w
}
