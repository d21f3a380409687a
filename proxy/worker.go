package proxy

import (
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/service"
	"github.com/remora-proxy/remora/proxy/shard"
)

// Worker is the part of the process on one loop: its services, its routes, and the sessions
// accepted on it. It handles a request from its first byte to its last.
type Worker struct {
	proc  *Process
	shard *shard.Shard

	// In the order of a request.
	acceptors  map[string]downstream.Acceptor // by the name of the protocol
	host       downstream.Host                // what the sessions share
	router     exchange.Router
	connectors service.Protocols // by the name of the protocol

	// Of the generation in use.
	generation uint64                      // its number
	services   map[string]*service.Service // by name
	removed    map[string]*service.Service // services that the latest switch has removed
}

// NewWorker adds a worker for loop to p, and returns it. All workers must be added before
// the first connection, on one goroutine. From then on only the loop uses its worker,
// except for the methods that say otherwise. seed seeds the worker's random numbers.
func NewWorker(p *Process, loop loop.Loop, log shard.Logger, seed uint64) *Worker {
	w := &Worker{
		proc: p, shard: shard.New(&p.shared, len(p.workers), loop, log, seed),
		acceptors: make(map[string]downstream.Acceptor), connectors: make(service.Protocols),
	}
	w.shard.Shedding.Do = w.shedAll
	w.router.Rand, w.router.Filters = w.shard.Rand, w.filtersOf
	w.host = downstream.Host{
		Shard: w.shard, Pool: exchange.NewPool(w.shard), Router: &w.router, Streams: p.streams, Opener: w,
	}
	for _, entry := range protocols {
		w.acceptors[entry.name] = entry.newAcceptor(&w.host)
		w.connectors[entry.name] = service.Protocol{
			Connector: entry.newConnector(), Streams: entry.streams, Opaque: entry.opaque, Resets: entry.resets,
		}
	}
	w.connectors[""] = w.connectors[fallbackProtocol]
	g := p.current.Load()
	w.prepare(g)
	w.switchTo(g, &Generation{})
	p.workers = append(p.workers, w)
	return w
}
