package config

import (
	"strings"
	"time"
)

// Service is one upstream: interchangeable endpoints and how to call them.
type Service struct {
	Name string `yaml:"-"` // its key in the file

	// Source of the endpoints.
	Discover  string     `yaml:"discover" list:"registries"`
	Endpoints []Endpoint `yaml:"endpoints"` // static ones
	// Links may open streams of any bytes to it, past the limits of requests. `tcp` services take them anyway.
	Opaque bool `yaml:"opaque"`
	// What the endpoints speak, unless the registry says otherwise. `grpc` is `http2`, over which calls of gRPC come. With `discover: static` the default is `http`.
	Protocol string `yaml:"protocol" list:"protocols" reload:"new service"`
	// Version of the PROXY protocol whose header begins each connection to an endpoint. `tcp` only.
	ProxyProtocol string `yaml:"proxy_protocol" oneof:"off v1 v2" reload:"new service"`
	// For HTTP requests converted to Dubbo.
	Serialization string `yaml:"serialization" oneof:"hessian2 fastjson" reload:"new service"`
	LB            LB     `yaml:"lb"`
	// Tells the application how long the caller still waits, even if the caller did not say it.
	TimeoutHeader bool `yaml:"timeout_header"`

	Policy `yaml:",inline"`

	// For a connection to an endpoint, TLS included. Then another endpoint, or 502 `upstream-connect`.
	ConnectTimeout time.Duration `yaml:"connect_timeout" min:"1ms"`
	// A pooled HTTP connection that is idle this long closes. Keep it below the server's idle timeout.
	IdleTimeout time.Duration `yaml:"idle_timeout" min:"1ms"`
	// Requests in flight to all endpoints. One more gets 503 `overloaded`. The last eighth is for connections with one request.
	MaxPending int `yaml:"max_pending" min:"1" max:"1000000000"`
	// Requests at the application at once. More wait in `max_queue`. 0 means no limit; `auto` finds it.
	MaxConcurrency int `yaml:"max_concurrency" auto:"-1" max:"1000000000" reload:"next; to or from 0 or auto: new service"`
	// Requests that wait for `max_concurrency`. One more gets 503 `overloaded`. 0 means none waits.
	MaxQueue int `yaml:"max_queue" max:"1000000000"`

	Check     Check      `yaml:"check"` // of each endpoint
	Outlier   Outlier    `yaml:"outlier"`
	Breaker   Breaker    `yaml:"breaker"`
	RateLimit RateLimit  `yaml:"rate_limit"`
	Allow     Allow      `yaml:"allow"`
	TLS       ServiceTLS `yaml:"tls"`
}

// DefaultService returns a service for which the file sets only the name.
func DefaultService(name string) *Service {
	return &Service{
		Name:           name,
		Discover:       DiscoverEtcd,
		Protocol:       defaultProtocol(DiscoverEtcd),
		ProxyProtocol:  ProxyProtocolOff,
		Serialization:  SerializationHessian2,
		LB:             LB{Policy: LBLeastPending, SlowStart: 10 * time.Second, Panic: 0.9, Hash: Hash{Balance: 1.25}},
		Policy:         DefaultPolicy(),
		ConnectTimeout: 250 * time.Millisecond,
		IdleTimeout:    4 * time.Second,
		MaxPending:     1024,
		MaxQueue:       1024,
		Check:          defaultCheck(),
		Allow:          defaultAllow(),
		Breaker:        Breaker{Open: 5 * time.Second, HalfOpen: 1},
		Outlier:        Outlier{Consecutive: 5, SuccessRate: 0.5, Base: time.Second, MaxEjected: 0.5},
	}
}

// MaxConcurrencyAuto is the value of MaxConcurrency for an automatic limit.
const MaxConcurrencyAuto = -1

// Serializations of Dubbo bodies.
const (
	SerializationHessian2 = "hessian2"
	SerializationFastjson = "fastjson"
)

// Values of Service.ProxyProtocol.
const (
	ProxyProtocolOff = "off"
	ProxyProtocolV1  = "v1" // text
	ProxyProtocolV2  = "v2" // binary
)

func (v *validator) service(s *Service) {
	at := path("services").entry(s.Name)
	v.refuseIf(s.Name == "" || strings.ContainsAny(s.Name, "/ \t\n"),
		at, "expected a name without spaces and /, got %q", s.Name)
	endpoints := at.key("endpoints")
	switch {
	case s.Discover == DiscoverStatic && len(s.Endpoints) == 0:
		v.report(endpoints, "missing; a static service needs endpoints")
	case s.Discover != DiscoverStatic && len(s.Endpoints) > 0:
		v.report(endpoints, "set, but discover is %s; expected discover: %s", s.Discover, DiscoverStatic)
	case s.Discover == DiscoverEtcd && len(v.config.Registry.Etcd.Endpoints) == 0:
		v.report(at.key("discover"), "is %s, but registry.etcd.endpoints is empty", DiscoverEtcd)
	}
	seen := map[string]bool{}
	for i, e := range s.Endpoints {
		shown := endpoints.item(i)
		if v.socketAddress(shown, e.Address, dialable) {
			v.refuseIf(seen[e.Address], shown, "%s is listed twice", e.Address)
		}
		seen[e.Address] = true
	}
	v.serviceCheck(at.key("check"), s)
	v.refuseIf(s.Outlier.Latency == 1, at.key("outlier").key("latency"),
		"1 would eject endpoints for being slower than half of them; expected 0 or at least 2")
	v.hash(at.key("lb").key("hash"), &s.LB)
	v.sticky(at.key("lb").key("sticky"), &s.LB)
	v.rateLimit(at, &s.RateLimit)
	v.refuseIf(s.RateLimit.Key != "", at.key("rate_limit").key("key"), "only the limits of listeners and routes have a key")
	v.serviceTLS(at.key("tls"), s)
	v.refuseIf(s.ProxyProtocol != ProxyProtocolOff && s.Protocol != ProtocolTCP, at.key("proxy_protocol"),
		"only a service with protocol %s sends it; a pooled connection carries the requests of many clients, whom X-Forwarded-For names", ProtocolTCP)
	v.retry(at, &s.Policy)
	v.tryTimeout(at, &s.Policy)
	v.hedge(at, &s.Policy)
}

// Outlier ejects endpoints that do worse than they should.
type Outlier struct {
	// Failures in a row that eject an endpoint. 0 means off.
	Consecutive int `yaml:"consecutive" max:"1000000000"`
	// An endpoint that serves a smaller share of its attempts is ejected. 0 means off.
	SuccessRate float64 `yaml:"success_rate" in:"[0,1]"`
	// An endpoint slower than this many medians of the others is ejected. 0 means off; 1 is refused.
	Latency int `yaml:"latency" max:"1000"`
	// Length of the first ejection. Later ones last up to 64 times as long.
	Base time.Duration `yaml:"base" min:"1ms" max:"1h"`
	// Share of endpoints that may be ejected, rounded down. 0 means none.
	MaxEjected float64 `yaml:"max_ejected" in:"[0,1]"`
}

// Breaker stops the calls of a service that only fails. The zero Consecutive is
// off.
type Breaker struct {
	// Failed requests in a row that open the breaker: 503 `breaker-open`. 0 means never.
	Consecutive int `yaml:"consecutive" max:"1000000000"`
	// Time until the first probe.
	Open time.Duration `yaml:"open" min:"1ms"`
	// Probes at a time.
	HalfOpen int `yaml:"half_open" min:"1" max:"65535"`
}
