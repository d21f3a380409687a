package config

import "time"

// Protocols of listeners, services and endpoints.
const (
	ProtocolHTTP  = "http"  // HTTP/1.1
	ProtocolLink  = "link"  // the inter-agent protocol
	ProtocolDubbo = "dubbo" // Dubbo 2
	ProtocolTCP   = "tcp"   // opaque bytes
)

// Ways to find the endpoints of a service.
const (
	DiscoverEtcd   = "etcd"   // watch the registry
	DiscoverStatic = "static" // Service.Endpoints
)

// Hedge modes.
const (
	HedgeOff    = "off"    // never hedge
	HedgeShadow = "shadow" // send nothing, report what hedging would do
	HedgeOn     = "on"     // hedge
)

// Names of failures in Retry.On, which a retry follows. Retry.On may also contain a
// status code, such as "503".
const (
	RetryConnect = "connect" // no connection, or nothing of the request was sent
	RetryRefused = "refused" // the provider's admission refused it
	RetryReset   = "reset"   // the connection broke before the response
	Retry5xx     = "5xx"     // any response with a status of 500 or more
	RetryTimeout = "timeout" // the attempt timed out, but not the request
)

// Load-balancing policies.
const (
	LBLeastPending       = "least_pending"
	LBWeightedRoundRobin = "weighted_round_robin"
	LBPeakEWMA           = "peak_ewma"
	LBRandom             = "random"
)

// Serializations of Dubbo bodies.
const (
	SerializationHessian2 = "hessian2"
	SerializationFastjson = "fastjson"
)

// MaxConcurrencyAuto is the value of MaxConcurrency for an automatic limit.
const MaxConcurrencyAuto = -1

// Log levels and formats.
const (
	LevelDebug = "debug"
	LevelInfo  = "info"
	LevelWarn  = "warn"
	LevelError = "error"

	FormatJSON = "json"
	FormatText = "text"
)

// Config is one file. Load and Parse return it complete and valid. It does not change
// afterwards, so any goroutine may read it.
//
// Each number and size has a max, so that it fits where it is used: 1000000000 limits
// no machine and fits into 32 bits, lengths in Dubbo have 31 bits, and sizes are added
// and multiplied. Durations without a max are at most maxDuration.
type Config struct {
	Node      Node       `yaml:"node"`
	Loops     int        `yaml:"loops" max:"256"` // 0 means max(1, floor(CPU quota))
	Log       Log        `yaml:"log"`
	Admin     Admin      `yaml:"admin"`
	Registry  Registry   `yaml:"registry"`
	Listeners []Listener `yaml:"listeners"`

	// Services by name. A map entry's Name equals its key. The field is before
	// Routes because the decoder follows the order of fields, and a route inherits
	// its service's policy.
	Services map[string]*Service `yaml:"services"`

	Routes    []Route    `yaml:"routes"` // first match wins
	Register  []Register `yaml:"register"`
	Limits    Limits     `yaml:"limits"`
	Timeouts  Timeouts   `yaml:"timeouts"`
	AccessLog AccessLog  `yaml:"access_log"`
	Tracing   Tracing    `yaml:"tracing"`
}

// Node identifies this sidecar.
type Node struct {
	ID   string `yaml:"id"`   // the default is the host name
	Zone string `yaml:"zone"` // empty means unknown
}

// Log is the sidecar's own log, on standard error.
type Log struct {
	Level  string `yaml:"level" oneof:"debug info warn error"`
	Format string `yaml:"format" oneof:"json text"`
}

// Admin is the admin API.
type Admin struct {
	Address string `yaml:"address"` // empty means no admin API

	// Token is required of callers, as "Authorization: Bearer TOKEN", except on
	// /healthz and /readyz. It may be empty only on loopback.
	Token string `yaml:"token" secret:"true"`
}

// Registry configures where services are found and registered.
type Registry struct {
	Etcd     Etcd   `yaml:"etcd"`
	CacheDir string `yaml:"cache_dir"` // directory of the last known endpoints; empty means no cache
}

// Etcd is the etcd cluster of the registry.
type Etcd struct {
	Endpoints []string      `yaml:"endpoints"` // host:port or URL, https:// for TLS; empty means no etcd
	Prefix    string        `yaml:"prefix"`    // prefix of all keys, without a slash at the end
	LeaseTTL  time.Duration `yaml:"lease_ttl" min:"1s"`
	Username  string        `yaml:"username"`
	Password  string        `yaml:"password" secret:"true"`
	TLS       TLS           `yaml:"tls"`
}

// Listener accepts downstream connections.
type Listener struct {
	Name     string `yaml:"name"`
	Address  string `yaml:"address"` // ip:port or host:port
	Protocol string `yaml:"protocol" oneof:"http dubbo link tcp"`
	Service  string `yaml:"service"`  // takes all traffic; empty means by route
	Insecure bool   `yaml:"insecure"` // allows a link off loopback in plain text

	// Transparent accepts connections that the kernel redirects here. Requests
	// without a route, and connections without HTTP, pass through to their original
	// destination.
	Transparent bool `yaml:"transparent"`

	Connections int `yaml:"connections" max:"1000000000"` // open connections of this listener, within limits.connections; 0 means no limit of its own

	RateLimit RateLimit `yaml:"rate_limit"`

	TLS TLS `yaml:"tls"`
}

// Match selects requests. Each condition that is set must hold; the zero Match selects
// all. Host, Path and Header select only HTTP requests, Service, Version and Group only
// Dubbo calls.
type Match struct {
	Host   string            `yaml:"host"`   // authority without port; case is ignored
	Path   string            `yaml:"path"`   // a prefix
	Method []string          `yaml:"method"` // one of these
	Header map[string]string `yaml:"header"` // exact values by name; one line of the header must have the value

	Service string `yaml:"service"` // the interface, or the path under which the provider exports it
	Version string `yaml:"version"` // version of the Dubbo service
	Group   string `yaml:"group"`   // group of the Dubbo service
}

// OfHTTP reports whether m selects only HTTP requests.
func (m *Match) OfHTTP() bool { return m.Host != "" || m.Path != "" || len(m.Header) > 0 }

// OfDubbo reports whether m selects only Dubbo calls.
func (m *Match) OfDubbo() bool { return m.Service != "" || m.Version != "" || m.Group != "" }

// Route sends matching requests to a service, or splits them between several.
type Route struct {
	Match Match `yaml:"match"`

	// Service takes all requests, or is the first service of Split. In the file its
	// key has a name, or the list of a split.
	Service string  `yaml:"service"`
	Split   []Share `yaml:"-"`

	Rewrite Rewrite `yaml:"rewrite"`

	// Policy is the effective policy: that of Service, overridden field by field by
	// the route. Each Share of a Split has its own.
	Policy `yaml:",inline"`
}

// Share is a service's part of a split route.
type Share struct {
	Name   string `yaml:"name"`
	Weight int    `yaml:"weight" max:"65535"` // relative to the sum over the split; 0 means no requests

	// Policy is the effective policy: that of the service, overridden by the route and
	// then by the share.
	Policy `yaml:",inline"`
}

// Rewrite changes a request before it is sent.
type Rewrite struct {
	Path string `yaml:"path"` // replaces Match.Path; empty means no rewrite
}

// Policy contains the settings of a service that a route may override.
type Policy struct {
	Timeout    time.Duration `yaml:"timeout" min:"1ms"` // for the whole request
	Idempotent bool          `yaml:"idempotent"`        // for any method
	Retry      Retry         `yaml:"retry"`
	Hedge      Hedge         `yaml:"hedge"`
}

// Retry says after which failures another attempt follows.
type Retry struct {
	Attempts int      `yaml:"attempts" min:"1" max:"10"` // beyond the first
	On       []string `yaml:"on"`                        // see RetryConnect; empty means never
}

// Hedge says when a second attempt starts while the first is in flight.
type Hedge struct {
	Mode     string        `yaml:"mode" oneof:"off shadow on"`
	Delay    time.Duration `yaml:"delay" auto:"0"`      // 0 means auto, by Quantile
	Quantile float64       `yaml:"quantile" in:"(0,1)"` // quantile of the latency
	MinDelay time.Duration `yaml:"min_delay"`           // lower bound of an automatic delay
	MaxDelay time.Duration `yaml:"max_delay"`           // upper bound of an automatic delay
	Budget   float64       `yaml:"budget" in:"(0,1]"`   // hedges per request
	Max      int           `yaml:"max" min:"1" max:"8"`
}

// Service is one upstream: interchangeable endpoints and how to call them.
type Service struct {
	Name          string     `yaml:"-"` // the key in the file
	Discover      string     `yaml:"discover" oneof:"etcd static"`
	Endpoints     []Endpoint `yaml:"endpoints"` // static ones
	Protocol      string     `yaml:"protocol" oneof:"link http dubbo tcp"`
	Serialization string     `yaml:"serialization" oneof:"hessian2 fastjson"` // of requests that are converted to Dubbo
	LB            LB         `yaml:"lb"`

	Policy `yaml:",inline"`

	ConnectTimeout time.Duration `yaml:"connect_timeout" min:"1ms"`
	IdleTimeout    time.Duration `yaml:"idle_timeout" min:"1ms"`                     // for pooled HTTP connections
	MaxPending     int           `yaml:"max_pending" min:"1" max:"1000000000"`       // requests in flight, over all endpoints
	MaxConcurrency int           `yaml:"max_concurrency" auto:"-1" max:"1000000000"` // requests at the application; 0 means no limit, -1 means auto
	MaxQueue       int           `yaml:"max_queue" max:"1000000000"`                 // requests that wait for MaxConcurrency; 0 means refuse at once

	Check     Check     `yaml:"check"` // for each endpoint
	Outlier   Outlier   `yaml:"outlier"`
	Breaker   Breaker   `yaml:"breaker"`
	RateLimit RateLimit `yaml:"rate_limit"`
	TLS       TLS       `yaml:"tls"`
}

// Endpoint is a static endpoint. In the file it may be plain "host:port".
type Endpoint struct {
	Address string `yaml:"address"` // host:port
	Weight  int    `yaml:"weight" min:"1" max:"65535"`
	Zone    string `yaml:"zone"`
}

// LB says how an endpoint is picked.
type LB struct {
	Policy    string        `yaml:"policy" oneof:"least_pending weighted_round_robin peak_ewma random"`
	Subset    int           `yaml:"subset" max:"1000000000"` // highest number of endpoints in use; 0 means all
	SlowStart time.Duration `yaml:"slow_start"`              // time until a new endpoint has its full weight; 0 means at once
	Panic     float64       `yaml:"panic" in:"[0,1]"`        // fraction of bad endpoints above which all are used; 0 means when all are bad
}

// Outlier ejects endpoints that are worse than the others.
type Outlier struct {
	Consecutive int           `yaml:"consecutive" max:"1000000000"` // failures in a row; 0 means that it is ignored
	SuccessRate float64       `yaml:"success_rate" in:"[0,1]"`      // ejected below it; 0 means that it is ignored
	Latency     int           `yaml:"latency" max:"1000"`           // mean latency, in medians of the others; 0 means that it is ignored
	Base        time.Duration `yaml:"base" min:"1ms" max:"1h"`      // unit of the ejection time
	MaxEjected  float64       `yaml:"max_ejected" in:"[0,1]"`       // fraction of endpoints; 0 means that none is ejected
}

// Breaker stops the requests to a service that only fails. With 0 for Consecutive it is
// off.
type Breaker struct {
	Consecutive int           `yaml:"consecutive" max:"1000000000"`  // failed requests in a row that open it; 0 means never
	Open        time.Duration `yaml:"open" min:"1ms"`                // time until the first probe
	HalfOpen    int           `yaml:"half_open" min:"1" max:"65535"` // probes in flight
}

// RateLimit bounds the requests per second, over all loops of the process. With 0 for
// Rate it is off.
type RateLimit struct {
	Rate  int `yaml:"rate" max:"1000000"`  // requests per second; 0 means no limit
	Burst int `yaml:"burst" max:"1000000"` // requests at once, after a pause; 0 means as many as in one second
}

// AccessLog writes a line of JSON for each request that Sample, Slow or Failed selects.
// With an empty Path it is off.
type AccessLog struct {
	Path   string        `yaml:"path"`                                      // a file, stdout or stderr; empty means no access log
	Sample float64       `yaml:"sample" in:"[0,1]"`                         // fraction of all requests
	Slow   time.Duration `yaml:"slow"`                                      // requests that take this long; 0 means that it selects none
	Failed bool          `yaml:"failed"`                                    // requests that end with 5xx, or with a response made by the sidecar
	Buffer int64         `yaml:"buffer" unit:"size" min:"64KiB" max:"1GiB"` // bytes of lines that may be queued; more are dropped
}

// Tracing exports the spans of sampled requests over OTLP/HTTP. With an empty Endpoint
// it is off.
type Tracing struct {
	Endpoint    string            `yaml:"endpoint"`                  // URL of the receiver, without /v1/traces; empty means off
	Sample      float64           `yaml:"sample" in:"[0,1]"`         // fraction of the requests that arrive without a trace
	ServiceName string            `yaml:"service_name"`              // service.name of the spans
	Headers     map[string]string `yaml:"headers" secret:"true"`     // sent with each export
	Queue       int               `yaml:"queue" min:"1" max:"65536"` // requests whose spans may be queued
	Timeout     time.Duration     `yaml:"timeout" min:"1ms"`         // for one export, with its retries
}

// Register registers a listener of this sidecar as an endpoint of a service.
type Register struct {
	Service   string `yaml:"service"`   // the name under which others find the service
	Listener  string `yaml:"listener"`  // one of Config.Listeners
	Advertise string `yaml:"advertise"` // host:port that others dial
	Weight    int    `yaml:"weight" min:"1" max:"65535"`
	Check     Check  `yaml:"check"` // for the application behind the listener
}

// Check is an active health check of each endpoint of a service, or of the application
// behind a registration. With neither HTTP nor TCP it is off.
type Check struct {
	HTTP      string        `yaml:"http"` // path to GET; empty means no HTTP check
	TCP       bool          `yaml:"tcp"`  // connect only
	Interval  time.Duration `yaml:"interval" min:"10ms"`
	Timeout   time.Duration `yaml:"timeout" min:"1ms"`             // for one check
	Healthy   int           `yaml:"healthy" min:"1" max:"65535"`   // successes in a row until an unhealthy endpoint is healthy
	Unhealthy int           `yaml:"unhealthy" min:"1" max:"65535"` // failures in a row until a healthy endpoint is unhealthy
}

// Enabled reports whether the check is on.
func (c *Check) Enabled() bool { return c.HTTP != "" || c.TCP }

// Limits bound the resources that peers can use. Sizes are in bytes.
type Limits struct {
	Message     int64 `yaml:"message" unit:"size" min:"1KiB" max:"1GiB"` // longest body that is handled as a whole; longer ones are streamed
	Header      int64 `yaml:"header" unit:"size" min:"1KiB" max:"1GiB"`  // start line and header section
	Headers     int   `yaml:"headers" min:"1" max:"65535"`               // fields per message
	Pipelined   int   `yaml:"pipelined" min:"1" max:"65535"`             // requests that wait on a downstream connection
	Requests    int   `yaml:"requests" max:"1000000000"`                 // requests on a downstream HTTP connection; 0 means no limit
	Connections int   `yaml:"connections" min:"1" max:"1000000000"`      // downstream connections of the process
	PerSource   int   `yaml:"per_source" max:"1000000000"`               // downstream connections from one IPv4 address or IPv6 /64; 0 means no limit
	Buffered    int64 `yaml:"buffered" unit:"size" min:"1MiB" max:"1024GiB"`
}

// Timeouts are those of downstream connections.
type Timeouts struct {
	Detect time.Duration `yaml:"detect" min:"1ms"` // for a redirected connection to show whether it speaks HTTP
	Header time.Duration `yaml:"header" min:"1ms"` // from the first byte to the end of the header section
	Body   time.Duration `yaml:"body" min:"1ms"`   // from the end of the header section to the end of the body
	Idle   time.Duration `yaml:"idle" min:"1ms"`   // between requests
	Write  time.Duration `yaml:"write" min:"1ms"`  // for the peer to accept written bytes
	Drain  time.Duration `yaml:"drain"`            // for requests in flight at shutdown
}
