// Package replica emulates one replica of a feature service: requests nearly always take about a
// millisecond. Now and then it freezes, in one of the ways of Mode. It speaks HTTP/1.1:
//
//	POST /compute   200 bytes of JSON, after the service time; with a store, 503 if that fails
//	     /echo      the request's body back, at once
//	GET  /bytes     ?size=N: so many bytes, at once
//	GET  /healthz   200, at once
//	GET  /stats     Stats as JSON, at once
//	POST /reset     restarts schedule and counts; ?epoch=UNIXNANO, default now
//
// The response has the request's x-nonce header, by which a client knows its own response.
//
// On the same port it speaks HTTP/2 without TLS to clients that know so. There each request is a
// unary gRPC call, with a message of 200 bytes as its response.
//
// Or it speaks Dubbo 2, with any interface, in hessian2 and in fastjson. The method hash returns
// the hashCode of a string, every other method its first argument. Like a Dubbo provider with a
// fixed pool it refuses a call without a free worker, with status 100.
package replica

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/remora-proxy/remora/internal/unixaddr"
	"github.com/remora-proxy/remora/lab/server"
)

// Options says how a replica behaves. The zero value of a field means its default, if any.
type Options struct {
	Listen   string   // host:port or unix:/path; default "127.0.0.1:0"
	Device   string   // network interface to listen on; "" means all
	Protocol Protocol // default HTTP
	Name     string   // in responses and Stats; default "replica"
	Mode     Mode     // default Stall
	Seed     uint64   // of freezes and service times

	// Workers is how many requests are worked on at once. HTTP: the others wait in their order;
	// default no limit. Dubbo: the others are refused; default 200.
	Workers int

	Service Service       // distribution of service times; default Lognormal
	Median  time.Duration // default 1 ms; Dubbo: 50 ms
	Sigma   float64       // of the logarithm; 0 means constant

	Stragglers   float64       // share of the attempts, each drawn by itself, that take StragglerLen longer; 0 to 1
	StragglerLen time.Duration // default 45 ms

	// Log, if set, gets a line for each request of HTTP/1.1 to /compute as soon as its work begins: the
	// microseconds of Unix time and the x-nonce (- means none). Write is not called concurrently; its
	// errors are ignored.
	Log io.Writer

	StallMean time.Duration // mean gap between freezes, or between refills of the cache; 0 means none
	StallLen  time.Duration // length of a freeze; unused in mode GC

	// Epoch is the start of the schedule of freezes. Default: the Unix epoch in mode
	// Correlated, so that replicas with one seed agree, else the start of the replica.
	Epoch time.Time

	CacheEntries int       // mode GC: entries of its cache; default 150,000
	CacheKind    CacheKind // of this and of the local cache; default PointerCache

	// Store is the host:port of a feature.Store. A request to /compute, with any method, must then
	// have an x-key of package feature. What the replica lacks in its cache it asks the store for, and
	// responds with 503 if it gets nothing.
	Store        string
	LocalBatches int // the most of the local cache; default 20,000, of some 2 million keys
}

// Replica is a running server.
type Replica struct {
	service *service
	server  *server.Server
	wg      sync.WaitGroup // the cache's goroutine
}

// Start listens and serves until Close.
func Start(opts Options) (*Replica, error) {
	opts, err := opts.withDefaults(time.Now())
	if err != nil {
		return nil, err
	}
	return serve(newService(opts))
}

func serve(s *service) (*Replica, error) {
	var lc net.ListenConfig
	if s.opts.Device != "" {
		lc.Control = func(_, _ string, c syscall.RawConn) (err error) {
			failed := c.Control(func(fd uintptr) { err = bindToDevice(int(fd), s.opts.Device) })
			return cmp.Or(failed, err)
		}
	}
	network, address := unixaddr.Split(s.opts.Listen)
	ln, err := lc.Listen(context.Background(), network, address)
	if err != nil {
		return nil, fmt.Errorf("replica %s: %w", s.opts.Name, err)
	}
	r := &Replica{service: s, server: server.New(ln)}
	if s.cache != nil {
		r.wg.Go(func() { s.cache.run(r.server.Context().Done()) })
	}
	handle := s.serveHTTP
	if s.opts.Protocol == Dubbo {
		handle = s.serveDubbo
	}
	r.server.Serve(handle)
	return r, nil
}

func (o Options) withDefaults(now time.Time) (Options, error) {
	o.Listen = cmp.Or(o.Listen, "127.0.0.1:0")
	o.Name = cmp.Or(o.Name, "replica")
	o.Mode = cmp.Or(o.Mode, Stall)
	o.Protocol = cmp.Or(o.Protocol, HTTP)
	o.Service = cmp.Or(o.Service, Lognormal)
	o.CacheKind = cmp.Or(o.CacheKind, PointerCache)
	o.CacheEntries = cmp.Or(o.CacheEntries, 150_000)
	o.LocalBatches = cmp.Or(o.LocalBatches, 20_000)
	if o.Protocol == Dubbo {
		o.Workers = cmp.Or(o.Workers, 200)
	}
	if o.Median == 0 {
		o.Median = time.Millisecond
		if o.Protocol == Dubbo {
			o.Median = 50 * time.Millisecond
		}
	}
	o.StragglerLen = cmp.Or(o.StragglerLen, 45*time.Millisecond)
	if o.Epoch.IsZero() {
		o.Epoch = now
		if o.Mode == Correlated {
			o.Epoch = time.Unix(0, 0)
		}
	}
	switch {
	case !slices.Contains(Modes, o.Mode):
		return o, fmt.Errorf("unknown mode %q: want one of %v", o.Mode, Modes)
	case !slices.Contains(Protocols, o.Protocol):
		return o, fmt.Errorf("unknown protocol %q: want one of %v", o.Protocol, Protocols)
	case !slices.Contains(Services, o.Service):
		return o, fmt.Errorf("unknown service %q: want one of %v", o.Service, Services)
	case o.Median < 0 || o.Sigma < 0 || o.StallMean < 0 || o.StallLen < 0 || o.CacheEntries < 0 || o.LocalBatches < 0 || o.Workers < 0 || o.StragglerLen < 0:
		return o, errors.New("a replica's times and sizes must not be negative")
	case !(o.Stragglers >= 0 && o.Stragglers <= 1):
		return o, fmt.Errorf("a share of stragglers of %v: want 0 to 1", o.Stragglers)
	case len(o.Name) > 64 || strings.ContainsFunc(o.Name, func(c rune) bool { return c < '!' || c > '~' || c == '"' || c == '\\' }):
		return o, fmt.Errorf("replica name %q: want at most 64 visible ASCII characters", o.Name)
	case !slices.Contains(CacheKinds, o.CacheKind):
		return o, fmt.Errorf("unknown kind of cache %q: want one of %v", o.CacheKind, CacheKinds)
	case o.Store == "" && (o.Mode == Expiry || o.Mode == Unequal) || o.Store != "" && o.Protocol != HTTP:
		return o, fmt.Errorf("mode %s, protocol %s: modes expiry and bimodal need a store, which protocol http has", o.Mode, o.Protocol)
	case o.Mode == GC && o.StallMean == 0:
		return o, errors.New("mode gc needs a mean gap between refills")
	}
	return o, nil
}

// Addr returns the address that the replica listens on.
func (r *Replica) Addr() string { return r.server.Addr() }

// Stats returns the counts.
func (r *Replica) Stats() Stats { return r.service.stats() }

// Close stops listening and closes the connections. Requests in flight may end until ctx is done;
// then Close returns its error.
func (r *Replica) Close(ctx context.Context) error {
	err := r.server.StopAccepting()
	for r.service.inFlight.Load() > 0 && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	if r.service.inFlight.Load() > 0 {
		r.server.Drop()
		return errors.Join(err, ctx.Err())
	}
	err = errors.Join(err, r.server.Close())
	r.wg.Wait()
	if l := r.service.local; l != nil {
		l.store.Close()
	}
	return err
}
