// Package registry describes which endpoints a service has now, as an immutable snapshot, and
// notifies of changes. Its subpackages provide the endpoints: etcd (discovery and
// registration), kubernetes (EndpointSlices), zookeeper (the records of Dubbo, and
// registration), file (a file that another program writes) and static (a list in the
// configuration). Package kept is what sources of whole lists have in common, pursuit what
// registrations have in common, and several makes one watcher of several sources. Three more
// stand between the sources and the users of snapshots: dns replaces host names by addresses,
// reach says for dns which addresses are refused, and health adds the verdicts of active checks.
//
// The rest of the sidecar sees only the snapshots of a registry. Picking endpoints works on a
// snapshot without a lock, and continues with the last one when the registry is unavailable.
// This package knows neither connections nor how an endpoint is picked.
package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// Endpoint is one address of a service. Endpoints are compared with ==.
type Endpoint struct {
	// Addr is the address to dial: "ip:port", or a Unix socket of the configuration. Watchers
	// that the sidecar uses deliver nothing else. Before package dns has resolved it, the host
	// may be a name.
	Addr string

	Weight int    // share of the load relative to the others, 1 to MaxWeight
	Zone   string // "" means unknown

	// Protocol is what the endpoint speaks, as in the configuration. "" means that the
	// registry has none, and the service's configuration decides.
	Protocol string

	Node string // id of the node that registered the endpoint, or ""
	Host string // name that Addr was resolved from, or ""

	// Unhealthy is the verdict of an active health check (package health). An unhealthy endpoint
	// is used only if no other is left. Registries do not set it.
	Unhealthy bool `json:"-"`

	// Down means that the unhealthy endpoint must not be used even if no other is left.
	Down bool `json:"-"`
}

// Protocols are the names that Endpoint.Protocol may have, besides ""; none means any.
type Protocols []string

// Check returns an error if protocol can't be an Endpoint's Protocol.
func (p Protocols) Check(protocol string) error {
	if protocol == "" || len(p) == 0 || slices.Contains(p, protocol) {
		return nil
	}
	return errors.New("registry: protocol is none of " + strings.Join(p, ", "))
}

const (
	MaxWeight    = 65535  // of an endpoint, as in package config
	MaxEndpoints = 10_000 // of one service that may be used; more are ignored and logged
	MaxListed    = 20_000 // of one service that a source reads, whether they may be used or not
	MaxName      = 256    // bytes of the Zone of an endpoint, and of its Node
)

var errName = fmt.Errorf("registry: zone or node has more than %d bytes", MaxName)

// CheckNames returns an error if zone or node can't be those of an Endpoint.
func CheckNames(zone, node string) error {
	if len(zone) > MaxName || len(node) > MaxName {
		return errName
	}
	return nil
}

// Source is where a snapshot comes from.
type Source string

const (
	SourceLive  Source = "live"  // from the registry itself
	SourceCache Source = "cache" // from disk: the registry has not responded since the start
)

// Snapshot is the known endpoints of one service at one moment. It is immutable: it may be
// kept and shared without a copy.
type Snapshot struct {
	Service string

	// Version grows with each snapshot of a service within a process, whatever the watcher.
	// It need not be contiguous.
	Version uint64

	Changed   time.Time  // when the endpoints last changed
	Endpoints []Endpoint // sorted by Addr, which is unique
	Source    Source

	// Unresolved reports whether the service has a host name without a known address, so that Endpoints may lack some.
	Unresolved bool

	// Revision is that of the source at which the service had exactly these endpoints. It never decreases for a service within a
	// process, unless the source loses its data. 0 means that there is no such revision: the source has none, the snapshot is from
	// several sources or from the cache, endpoints stay in use that the source does not have, or the source has too many.
	Revision int64
}

var versions atomic.Uint64

// NewSnapshot returns a snapshot of endpoints, which it normalizes in place and keeps.
func NewSnapshot(service string, source Source, changed time.Time, endpoints []Endpoint) *Snapshot {
	return &Snapshot{
		Service:   service,
		Version:   versions.Add(1),
		Changed:   changed,
		Endpoints: Normalize(endpoints),
		Source:    source,
	}
}

// With returns s with these endpoints, which it normalizes in place and keeps, and with a version above all others. The Revision
// remains: a caller that adds or drops endpoints must set it.
func (s *Snapshot) With(endpoints []Endpoint) *Snapshot {
	next := s.Again()
	next.Endpoints = Normalize(endpoints)
	return next
}

// Again returns s with a version above all others: a user that got other snapshots
// meanwhile would take s for an old one.
func (s *Snapshot) Again() *Snapshot {
	again := *s
	again.Version = versions.Add(1)
	return &again
}

// Normalize sorts endpoints by Addr in place, keeps the first of those with the same Addr,
// limits their weights to 1 to MaxWeight, and returns the rest. It only reads a list that it has
// returned before, so that such a list may be shared.
func Normalize(endpoints []Endpoint) []Endpoint {
	if isNormal(endpoints) {
		return slices.Clip(endpoints)
	}
	for i := range endpoints {
		endpoints[i].Weight = min(max(endpoints[i].Weight, 1), MaxWeight)
	}
	slices.SortStableFunc(endpoints, func(a, b Endpoint) int { return strings.Compare(a.Addr, b.Addr) })
	endpoints = slices.CompactFunc(endpoints, func(a, b Endpoint) bool { return a.Addr == b.Addr })
	return slices.Clip(endpoints)
}

func isNormal(endpoints []Endpoint) bool {
	for i := range endpoints {
		e := &endpoints[i]
		if e.Weight < 1 || e.Weight > MaxWeight || i > 0 && endpoints[i-1].Addr >= e.Addr {
			return false
		}
	}
	return true
}

// Watcher follows services.
type Watcher interface {
	// Watch delivers the current snapshot of service as soon as it is known, and a new one
	// after each change. notify is called from one goroutine at a time and must not block. It
	// must not call the Close method of the Watcher.
	//
	// stop ends the watch and does not wait: a running notify may continue after stop returns,
	// but no other begins. Calling stop again does nothing. notify may call stop.
	Watch(service string, notify func(*Snapshot)) (stop func())
}

// Newest passes a watch's newest snapshot to another goroutine. Its capacity must be 1.
type Newest chan *Snapshot

// Put is a notify function. It replaces a snapshot that was not received. One goroutine at
// a time may call it: with two, one could block.
func (n Newest) Put(s *Snapshot) {
	select {
	case <-n:
	default:
	}
	n <- s
}

// Registration announces an endpoint of a service at Addr.
type Registration struct {
	Service string // not empty; no "/" at either end
	Node    string // id of this node, unique among the service's nodes that share Addr
	Addr    string // advertised "host:port", reachable from the consumers

	Weight   int    // 0 means 1
	Zone     string // "" means unknown
	Protocol string // of the listener

	// Metadata is stored beside the fields above for other readers of the registry. The keys
	// of these fields ("weight", "zone", "protocol", "node") are ignored. It must not change
	// after Register.
	Metadata map[string]string
}

// Registrar announces this process's own endpoints.
type Registrar interface {
	// Register returns at once, and retries in the background until the handle is withdrawn or
	// closed. A registration that can never succeed (a bad address) is Failed from the start.
	Register(Registration) Handle
}

// Handle is one registration. Its methods may be called from any goroutine.
type Handle interface {
	// Withdraw removes the endpoint from the registry until Restore, because the application's
	// health check failed. It returns at once. Calling it again does nothing.
	Withdraw()

	// Yield leaves the endpoint to another process that will announce it. After it returns,
	// this registration puts nothing more. The registry keeps the endpoint until Close, which
	// removes only what the other process has not put.
	Yield()

	Restore() // undoes Withdraw and Yield; returns at once

	// Change announces another value for the same service, node and address. It returns at
	// once; the registry keeps the old value until the new one is put.
	Change(Registration)

	// Close removes the endpoint for good, and waits until the registry has confirmed that or
	// ctx is done. In the latter case it returns ctx's error, and the endpoint goes when its
	// lease ends. Calling it again returns the same result.
	Close(ctx context.Context) error

	State() State
	Err() error // why the last attempt failed, or nil if it succeeded
}

// State is the state of a registration.
type State uint8

const (
	Pending    State = iota // not confirmed by the registry, or no longer; being retried
	Registered              // confirmed; the lease is kept alive
	Withdrawn               // on request; may be restored
	Closed                  // final, on request
	Failed                  // final: the registration is invalid
)

var stateNames = [...]string{"pending", "registered", "withdrawn", "closed", "failed"}

// String returns the state's name in lower case, as the admin API shows it.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return "unknown"
}
