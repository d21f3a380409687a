package config

import (
	"reflect"
	"strings"
	"time"
)

// Service is one upstream: interchangeable endpoints and how to call them.
type Service struct {
	Name string `yaml:"-"` // its key in the file

	// [Source](discovery.md) of the endpoints, or a list of sources.
	Discover  []string   `yaml:"discover" list:"registries" single:"true" filled:"true"`
	Endpoints []Endpoint `yaml:"endpoints"` // static ones
	// Of several sources: the `first` that has endpoints, or `merge` those of all.
	Combine string `yaml:"combine" oneof:"first merge"`
	// Links may open streams of any bytes to it, past the limits of requests. `tcp` services take them anyway.
	Opaque bool `yaml:"opaque"`
	// What the endpoints speak, unless the registry says otherwise. `grpc` is `http2`, over which gRPC calls come. With `discover: static` the default is `http`.
	Protocol string `yaml:"protocol" list:"protocols" reload:"new service"`
	// Version of the PROXY protocol whose header begins each connection to an endpoint. `tcp` only.
	ProxyProtocol string `yaml:"proxy_protocol" oneof:"off v1 v2" reload:"new service"`
	// For HTTP requests converted to Dubbo.
	Serialization string `yaml:"serialization" oneof:"hessian2 fastjson" reload:"new service"`
	LB            LB     `yaml:"lb"`
	// Asks endpoints with a sidecar for their load before a request. `auto`: if requests are rare, so that reports of load are old.
	Probe string `yaml:"probe" oneof:"auto on off"`
	// Tells the application how long the caller still waits, even if the caller did not say it.
	TimeoutHeader bool `yaml:"timeout_header"`

	Policy `yaml:",inline"`

	// For a connection to an endpoint, TLS included. Then another endpoint, or 502 `upstream-connect`.
	ConnectTimeout time.Duration `yaml:"connect_timeout" min:"1ms"`
	// A pooled HTTP connection that is idle this long closes. Keep it below the server's idle timeout.
	IdleTimeout time.Duration `yaml:"idle_timeout" min:"1ms"`
	// What tells an HTTP/1.1 application that nobody awaits its response any more: `close` closes the connection, `finish` tells it nothing. `auto` closes it if a new one likely costs less than the work left. ([more](operations.md#work-that-nobody-awaits))
	Cancel string `yaml:"cancel" oneof:"auto close finish" reload:"new service"`
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
	s := withDefaults[Service]()
	s.Name = name
	return &s
}

func (s *Service) setDefaults() {
	*s = Service{
		Discover:       []string{DiscoverEtcd},
		Combine:        CombineFirst,
		Protocol:       defaultProtocol(DiscoverEtcd),
		ProxyProtocol:  ProxyProtocolOff,
		Serialization:  SerializationHessian2,
		Probe:          ProbeAuto,
		ConnectTimeout: 250 * time.Millisecond,
		IdleTimeout:    4 * time.Second,
		Cancel:         CancelAuto,
		MaxPending:     1024,
		MaxQueue:       1024,
	}
}

// MaxConcurrencyAuto is the value of MaxConcurrency for an automatic limit.
const MaxConcurrencyAuto = -1

// Values of Service.Cancel.
const (
	CancelAuto   = "auto"
	CancelClose  = "close"
	CancelFinish = "finish"
)

// Serializations of Dubbo bodies.
const (
	SerializationHessian2 = "hessian2"
	SerializationFastjson = "fastjson"
)

// Values of Service.Probe.
const (
	ProbeAuto = "auto"
	ProbeOn   = "on"
	ProbeOff  = "off"
)

// Values of Service.ProxyProtocol.
const (
	ProxyProtocolOff = "off"
	ProxyProtocolV1  = "v1" // text
	ProxyProtocolV2  = "v2" // binary
)

func (s *Service) check(in scope, at path) {
	in.service = s
	in.refuseIf(s.Name == "" || strings.ContainsAny(s.Name, "/ \t\n"),
		at, "expected a name without spaces and /, got %q", s.Name)
	in.refuseIf(strings.Contains(s.Name, "${"), at, "variables are expanded in values, not in keys; expected the name itself")
	s.checkSources(in, at)
	s.checkListed(in, at)
	in.refuseIf(s.ProxyProtocol != ProxyProtocolOff && s.Protocol != ProtocolTCP, at.key("proxy_protocol"),
		"only a service with protocol %s sends it; a pooled connection carries the requests of many clients, whom X-Forwarded-For names", ProtocolTCP)
	s.Policy.check(in, at, nil)
	in.sections(reflect.ValueOf(s).Elem(), at)
}
