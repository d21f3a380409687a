package mesh

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/remora-proxy/remora/proxy/config"
)

// Spec is a mesh, the load on it, and what happens to it. NewSpec fills in the
// defaults.
type Spec struct {
	Seed uint64

	Consumers int
	Providers int
	Loops     int  // of each sidecar
	Direct    bool // consumers call the applications themselves, past the providers' sidecars

	Applications
	Network
	Traffic

	// Consumer and Provider are the product's own configuration: YAML values by
	// the keys of a service, or one of the top-level keys limits, timeouts, node.
	Consumer, Provider map[string]string

	Route map[string]string // YAML values by the keys of the consumers' route

	Events []Event
}

// Applications is how the applications work.
type Applications struct {
	Threads   int       // of each application
	Capacity  []float64 // Threads of provider i are multiplied by Capacity[i % len]; empty means by 1
	Weights   []int     // in the registry, likewise; empty means 1
	HTTP2Apps bool      // they speak HTTP/2 instead of HTTP/1.1
	Stop      bool      // over HTTP/1.1 they stop their work for a connection that closes

	Queue int // requests that wait for a thread; one more is answered 503

	Service time.Duration // median of the lognormal service time
	Sigma   float64       // of it

	Stragglers   float64       // share of the attempts that take longer, by chance
	StragglerFor time.Duration // how much longer

	StallEvery time.Duration // mean of the exponential time between two stalls of an application; 0 means no stalls
	StallFor   time.Duration // all its requests freeze for so long
}

// Network is what lies between the hosts, and the registry.
type Network struct {
	Breaks    float64 // share of the segments between hosts that break their connection
	Bandwidth int     // bytes per second from one host to another; 0 means no limit

	NewsMin, NewsMax time.Duration // what the registry's news takes to a consumer
	Lease            time.Duration // until a provider that died leaves the registry
}

// Traffic is the load.
type Traffic struct {
	Load     float64       // requests per second, over all consumers
	Batch    float64       // batch requests per second besides
	Duration time.Duration // of the load
	WarmUp   time.Duration // requests sent before are not measured

	HTTP2Callers bool // they speak HTTP/2 instead of HTTP/1.1

	Abandon float64 // share of the requests whose callers go away before 20 ms are over
	Unsafe  float64 // share of the requests that are not idempotent
	Large   float64 // share of the requests whose body is 100 KB instead of 100 bytes
	Same    float64 // share of the requests that are GETs of a few paths, whose responses they may share
}

// NewSpec returns a mesh of one consumer and three providers, with hedging off and no
// load.
func NewSpec() Spec {
	return Spec{
		Seed: 1, Consumers: 1, Providers: 3, Loops: 1,
		Applications: Applications{Threads: 8, Queue: 1000, Service: time.Millisecond, Sigma: 0.5},
		Network:      Network{NewsMin: time.Millisecond, NewsMax: 50 * time.Millisecond, Lease: time.Second},
		Traffic:      Traffic{Duration: time.Second},
		Consumer:     map[string]string{}, Provider: map[string]string{}, Route: map[string]string{},
	}
}

// clone returns a copy that shares no memory with s.
func (s *Spec) clone() Spec {
	c := *s
	c.Capacity, c.Weights = slices.Clone(s.Capacity), slices.Clone(s.Weights)
	c.Consumer, c.Provider, c.Route = maps.Clone(s.Consumer), maps.Clone(s.Provider), maps.Clone(s.Route)
	c.Events = slices.Clone(s.Events)
	return c
}

// Validate returns an error if s can't be run.
func (s *Spec) Validate() error {
	switch {
	case s.Consumers < 1 || s.Providers < 1 || s.Loops < 1 || s.Threads < 1:
		return errors.New("there is at least one of consumers, providers, loops and threads")
	case s.Consumers > maxHosts || s.Providers > maxHosts:
		return fmt.Errorf("at most %d consumers or providers", maxHosts)
	case s.Service <= 0 || s.Duration <= 0 || s.WarmUp >= s.Duration:
		return errors.New("service time and duration are positive, and the warm-up is shorter than the load")
	case s.NewsMax < s.NewsMin:
		return errors.New("the registry's delays are in the wrong order")
	}
	for _, e := range s.Events {
		if e.Target.Kind == TargetProvider && e.Target.Index > s.Providers ||
			e.Target.Kind == TargetConsumer && e.Target.Index > s.Consumers {
			return fmt.Errorf("%v: there is no %v", e, e.Target)
		}
	}
	_, err := s.consumerConfig()
	_, err2 := s.providerConfig()
	return errors.Join(err, err2)
}

const (
	maxHosts = 60_000

	egressPort  = 15001
	ingressPort = 15006
	appPort     = 8080
)

// topLevel has the keys that are not of a service.
var topLevel = map[string]bool{"limits": true, "timeouts": true, "node": true}

func (s *Spec) consumerConfig() (*config.Config, error) {
	protocol := config.ProtocolLink
	if s.Direct {
		protocol = s.appProtocol()
	}
	route := "service: compute"
	for _, key := range slices.Sorted(maps.Keys(s.Route)) {
		route += ", " + key + ": " + s.Route[key]
	}
	return parseConfig("consumer", `
listeners: [{name: egress, address: "127.0.0.1:15001", protocol: http}]
routes: [{`+route+`}]
services:
  compute:
    protocol: `+protocol+"\n", s.Consumer)
}

func (s *Spec) providerConfig() (*config.Config, error) {
	return parseConfig("provider", `
listeners: [{name: ingress, address: "127.0.0.1:15006", protocol: link, service: local}]
services:
  local:
    protocol: `+s.appProtocol()+"\n", s.Provider)
}

// appProtocol returns the protocol of the service that calls applications.
func (s *Spec) appProtocol() string {
	if s.HTTP2Apps {
		return config.ProtocolHTTP2
	}
	return config.ProtocolHTTP
}

// parseConfig parses file, which ends with a service, after it has added keys to that
// service. The mesh replaces the static endpoint.
func parseConfig(name, file string, keys map[string]string) (*config.Config, error) {
	var text, top strings.Builder
	text.WriteString(file + "    discover: static\n    endpoints: [\"10.255.0.1:1\"]\n")
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if topLevel[key] {
			fmt.Fprintf(&top, "%s: %s\n", key, keys[key])
			continue
		}
		fmt.Fprintf(&text, "    %s: %s\n", key, keys[key])
	}
	cfg, err := config.Parse(name, []byte(text.String()+top.String()), func(string) (string, bool) { return "", false })
	if cfg != nil {
		cfg.Timeouts.HalfClose = 0 // callers end their side only to leave
	}
	return cfg, err
}

// threads returns the number of threads of the application of provider i, from 0.
func (s *Spec) threads(i int) int {
	if len(s.Capacity) == 0 {
		return s.Threads
	}
	return max(1, int(float64(s.Threads)*s.Capacity[i%len(s.Capacity)]))
}

func (s *Spec) weight(i int) int {
	if len(s.Weights) == 0 {
		return 1
	}
	return cmp.Or(s.Weights[i%len(s.Weights)], 1)
}
