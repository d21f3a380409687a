// Package registry tells one thing: which endpoints a service has now, as an
// immutable snapshot, and when that changed. Where the endpoints come from is
// the business of its subpackages: etcd (discovery and registration), static (a
// list in the configuration) and dns (host names become addresses).
//
// A snapshot is all that the rest of the sidecar sees of a registry: the picking
// of endpoints works on it without a lock, and goes on working on the last one
// when the registry is gone.
package registry

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// Endpoint is one address at which a service answers. Endpoints are compared
// with ==.
type Endpoint struct {
	// Addr is where to dial: "ip:port". Watchers that the sidecar uses never
	// deliver anything else; before package dns has seen it, the host may be a
	// name.
	Addr string

	// Weight is the endpoint's share of the load relative to the others,
	// 1 to MaxWeight.
	Weight int

	// Zone is where the endpoint runs; "" if unknown.
	Zone string

	// Protocol is what the endpoint speaks: link, http, dubbo or tcp; "" where the
	// registry says nothing and the service's configuration decides.
	Protocol string

	// Node is the id of the node that registered the endpoint, or "".
	Node string

	// Host is the host name that Addr was resolved from, or "".
	Host string

	// Unhealthy is the verdict of an active health check (package health): it is
	// used when no other is left. The registries know nothing of it.
	Unhealthy bool `json:"-"`
}

// ErrProtocol is returned for what no endpoint speaks.
var ErrProtocol = errors.New("registry: protocol is none of link, http, dubbo, tcp")

// CheckProtocol returns ErrProtocol for what can't be an Endpoint's Protocol.
func CheckProtocol(protocol string) error {
	switch protocol {
	case "", "link", "http", "dubbo", "tcp":
		return nil
	}
	return ErrProtocol
}

const (
	// MaxWeight is the greatest weight of an endpoint: what package config allows.
	MaxWeight = 65535

	// MaxEndpoints bounds the endpoints of one service; what a registry holds
	// beyond it is left out and logged.
	MaxEndpoints = 10_000
)

// Source tells how fresh a snapshot is.
type Source string

const (
	SourceLive  Source = "live"  // from the registry itself
	SourceCache Source = "cache" // from disk: the registry has not answered since the start
)

// Snapshot is what was known of one service's endpoints at one moment. It is
// immutable: it may be kept and shared without a copy, and nobody may write to it.
type Snapshot struct {
	Service string

	// Version grows from each snapshot of a service to the next within a
	// process, whatever the watcher; it need not be contiguous.
	Version uint64

	// Changed is when the endpoints became what they are here.
	Changed time.Time

	// Endpoints are sorted by Addr, and their Addrs are unique.
	Endpoints []Endpoint

	Source Source
}

var versions atomic.Uint64

// NewSnapshot makes a snapshot of endpoints, which it sorts in place and keeps.
// Of several endpoints with the same Addr the first stays. Weights outside 1 to
// MaxWeight are moved to the nearer bound, 0 means 1.
func NewSnapshot(service string, source Source, changed time.Time, endpoints []Endpoint) *Snapshot {
	return &Snapshot{
		Service:   service,
		Version:   versions.Add(1),
		Changed:   changed,
		Endpoints: Normalize(endpoints),
		Source:    source,
	}
}

// Normalize sorts endpoints by Addr in place, drops all but the first of those
// with the same Addr, brings weights into their bounds and returns what is left.
func Normalize(endpoints []Endpoint) []Endpoint {
	for i := range endpoints {
		endpoints[i].Weight = min(max(endpoints[i].Weight, 1), MaxWeight)
	}
	slices.SortStableFunc(endpoints, func(a, b Endpoint) int { return strings.Compare(a.Addr, b.Addr) })
	endpoints = slices.CompactFunc(endpoints, func(a, b Endpoint) bool { return a.Addr == b.Addr })
	return slices.Clip(endpoints)
}

// Watcher follows services.
type Watcher interface {
	// Watch delivers the current snapshot of service as soon as it is known and
	// a new one after each change. notify is called from one goroutine at a
	// time and must not block; it must not call stop's Watcher.Close.
	//
	// stop ends the watch and waits for nothing: a notify that has begun may
	// still be running when stop returns, and no other begins after it. Calling
	// stop again does nothing. stop may be called from within notify.
	Watch(service string, notify func(*Snapshot)) (stop func())
}

// Registration announces that a service answers at Addr.
type Registration struct {
	Service string // not empty; no "/" at either end
	Node    string // id of this node, unique among the service's nodes that share Addr
	Addr    string // advertised "host:port", reachable from the consumers

	Weight   int    // 0: 1
	Zone     string // "": unknown
	Protocol string // link | http | dubbo | tcp

	// Metadata is stored beside the fields above for other readers of the
	// registry; keys of the same names as theirs ("weight", "zone",
	// "protocol", "node") are left out. Not to be changed after Register.
	Metadata map[string]string
}

// Registrar announces this process's own endpoints.
type Registrar interface {
	// Register returns at once and keeps trying in the background until the
	// handle is withdrawn or closed. A registration that can never succeed (a
	// bad address) has the state Failed from the start.
	Register(Registration) Handle
}

// Handle is one registration. Its methods may be called from any goroutine.
type Handle interface {
	// Withdraw takes the endpoint out of the registry until Restore: the app's
	// health check failed. It returns at once. Withdrawing twice does nothing.
	Withdraw()

	// Yield leaves the endpoint to another process that is about to announce it:
	// when it returns, nothing is put for this registration any more. What is
	// there stays until Close, which takes out only what the other has not put.
	Yield()

	// Restore undoes Withdraw and Yield. It returns at once.
	Restore()

	// Change announces something else of the same service, node and address. It
	// returns at once; what is in the registry stays until the other is put in its
	// place.
	Change(Registration)

	// Close takes the endpoint out for good, waits until the registry has
	// confirmed that or ctx is done, and returns ctx's error in the latter
	// case: the endpoint then goes away when its lease runs out. Closing twice
	// returns what the first call did.
	Close(ctx context.Context) error

	// State is where the registration stands now.
	State() State

	// Err is why the last attempt failed; nil when it succeeded.
	Err() error
}

// State is where a registration stands.
type State uint8

const (
	Pending    State = iota // not confirmed by the registry (any more), being tried
	Registered              // confirmed, its lease kept alive
	Withdrawn               // on request, may come back
	Closed                  // for good
	Failed                  // for good: the registration itself is invalid
)

var stateNames = [...]string{"pending", "registered", "withdrawn", "closed", "failed"}

// String is the state's name in lower case, as the admin API shows it.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return "unknown"
}
