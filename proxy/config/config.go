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

// What a retry may be made on: the names in Retry.On. A status code ("503") may
// stand there too.
const (
	RetryConnect = "connect" // no connection, or nothing of the request was sent
	RetryRefused = "refused" // the provider's admission refused it
	RetryReset   = "reset"   // the connection broke before the answer
	Retry5xx     = "5xx"     // any answer with a status of 500 or more
	RetryTimeout = "timeout" // the attempt, not the request, ran out of time
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

// MaxConcurrencyAuto is the MaxConcurrency that follows the application.
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

// Config is one file. What Load and Parse return is complete and valid; it is
// not changed afterwards, so it may be read from any goroutine.
//
// Every number and size has a max, so that it fits wherever it is used: 1000000000 is
// no limit to any machine and counted in 32 bits, lengths of Dubbo are of 31 bits, and
// sizes are added up and multiplied. Durations without one are longest at most.
type Config struct {
	Node      Node       `yaml:"node"`
	Loops     int        `yaml:"loops" max:"256"` // 0: max(1, floor(CPU quota))
	Log       Log        `yaml:"log"`
	Admin     Admin      `yaml:"admin"`
	Registry  Registry   `yaml:"registry"`
	Listeners []Listener `yaml:"listeners"`

	// Services by name. A map entry's Name equals its key. They stand before
	// Routes because the decoder goes by this order, and a route starts from
	// its service's policy.
	Services map[string]*Service `yaml:"services"`

	Routes    []Route    `yaml:"routes"` // first match wins
	Register  []Register `yaml:"register"`
	Limits    Limits     `yaml:"limits"`
	Timeouts  Timeouts   `yaml:"timeouts"`
	AccessLog AccessLog  `yaml:"access_log"`
	Tracing   Tracing    `yaml:"tracing"`
}

// Node says who this sidecar is.
type Node struct {
	ID   string `yaml:"id"`   // default: host name
	Zone string `yaml:"zone"` // "": unknown
}

// Log is the sidecar's own log, on standard error.
type Log struct {
	Level  string `yaml:"level" oneof:"debug info warn error"`
	Format string `yaml:"format" oneof:"json text"`
}

// Admin is the admin API.
type Admin struct {
	Address string `yaml:"address"` // "": no admin API

	// Token is what callers of all but /healthz and /readyz present, as
	// "Authorization: Bearer TOKEN". "": nothing, on loopback only.
	Token string `yaml:"token" secret:"true"`
}

// Registry is where services are found and registered.
type Registry struct {
	Etcd     Etcd   `yaml:"etcd"`
	CacheDir string `yaml:"cache_dir"` // last known endpoints; "": none kept
}

// Etcd is the cluster that holds the endpoints.
type Etcd struct {
	Endpoints []string      `yaml:"endpoints"` // host:port or URL, https:// for TLS; empty: no etcd
	Prefix    string        `yaml:"prefix"`    // of all keys, no slash at the end
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
	Service  string `yaml:"service"`  // all traffic goes there; "": by route
	Insecure bool   `yaml:"insecure"` // a link off loopback, in plain text

	// Transparent takes in connections that the kernel redirects here. What has
	// no route, or is no HTTP, passes to where it was going.
	Transparent bool `yaml:"transparent"`

	Connections int `yaml:"connections" max:"1000000000"` // accepted ones open at a time, of limits.connections; 0: no bound of its own

	RateLimit RateLimit `yaml:"rate_limit"`

	TLS TLS `yaml:"tls"`
}

// Match selects requests. Every condition that is set must hold; the zero Match
// takes all. Host, Path and Header select requests of HTTP alone, Service,
// Version and Group calls of Dubbo alone.
type Match struct {
	Host   string            `yaml:"host"`   // authority without port, any case
	Path   string            `yaml:"path"`   // a prefix
	Method []string          `yaml:"method"` // one of these
	Header map[string]string `yaml:"header"` // exact values, by name; one line of each has it

	Service string `yaml:"service"` // the interface, or the path that the provider exports it by
	Version string `yaml:"version"` // of the service
	Group   string `yaml:"group"`   // of the service
}

// OfHTTP tells whether m selects requests of HTTP alone.
func (m *Match) OfHTTP() bool { return m.Host != "" || m.Path != "" || len(m.Header) > 0 }

// OfDubbo tells whether m selects calls of Dubbo alone.
func (m *Match) OfDubbo() bool { return m.Service != "" || m.Version != "" || m.Group != "" }

// Route sends what it matches to a service, or splits it between several.
type Route struct {
	Match Match `yaml:"match"`

	// Service takes all, or is the first of Split. In the file either a name or
	// the list of a split stands under its key.
	Service string  `yaml:"service"`
	Split   []Share `yaml:"-"`

	Rewrite Rewrite `yaml:"rewrite"`

	// Policy is the effective one: that of Service, overridden field by field
	// by what the route sets. Each Share of a Split has its own.
	Policy `yaml:",inline"`
}

// Share is a service's part of a split route.
type Share struct {
	Name   string `yaml:"name"`
	Weight int    `yaml:"weight" max:"65535"` // of the sum over the split; 0: nothing for now

	// Policy is the effective one: that of the service, overridden by what the
	// route sets, and that by what the share sets.
	Policy `yaml:",inline"`
}

// Rewrite changes a request on its way.
type Rewrite struct {
	Path string `yaml:"path"` // takes the place of Match.Path; "": nothing is rewritten
}

// Policy is what a route may override of its service.
type Policy struct {
	Timeout    time.Duration `yaml:"timeout" min:"1ms"` // of the whole request
	Idempotent bool          `yaml:"idempotent"`        // whatever the method
	Retry      Retry         `yaml:"retry"`
	Hedge      Hedge         `yaml:"hedge"`
}

// Retry says when a failed attempt is followed by another.
type Retry struct {
	Attempts int      `yaml:"attempts" min:"1" max:"10"` // beyond the first
	On       []string `yaml:"on"`                        // see RetryConnect; empty: never
}

// Hedge says when a second attempt runs beside a slow one.
type Hedge struct {
	Mode     string        `yaml:"mode" oneof:"off shadow on"`
	Delay    time.Duration `yaml:"delay" auto:"0"`      // 0: auto, by Quantile
	Quantile float64       `yaml:"quantile" in:"(0,1)"` // of latency; in (0, 1)
	MinDelay time.Duration `yaml:"min_delay"`           // floor of an auto delay
	MaxDelay time.Duration `yaml:"max_delay"`           // ceiling of an auto delay
	Budget   float64       `yaml:"budget" in:"(0,1]"`   // hedges per primary; in (0, 1]
	Max      int           `yaml:"max" min:"1" max:"8"`
}

// Service is one upstream: interchangeable endpoints and how to call them.
type Service struct {
	Name          string     `yaml:"-"` // its key in the file
	Discover      string     `yaml:"discover" oneof:"etcd static"`
	Endpoints     []Endpoint `yaml:"endpoints"` // static ones
	Protocol      string     `yaml:"protocol" oneof:"link http dubbo tcp"`
	Serialization string     `yaml:"serialization" oneof:"hessian2 fastjson"` // of calls converted to Dubbo
	LB            LB         `yaml:"lb"`

	Policy `yaml:",inline"`

	ConnectTimeout time.Duration `yaml:"connect_timeout" min:"1ms"`
	IdleTimeout    time.Duration `yaml:"idle_timeout" min:"1ms"`                     // of pooled HTTP connections
	MaxPending     int           `yaml:"max_pending" min:"1" max:"1000000000"`       // requests out, over all endpoints
	MaxConcurrency int           `yaml:"max_concurrency" auto:"-1" max:"1000000000"` // at the app at once; 0: no limit, -1: auto
	MaxQueue       int           `yaml:"max_queue" max:"1000000000"`                 // waiting for MaxConcurrency; 0: refuse at once

	Check     Check     `yaml:"check"` // of each endpoint
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

// LB is how an endpoint is picked.
type LB struct {
	Policy    string        `yaml:"policy" oneof:"least_pending weighted_round_robin peak_ewma random"`
	Subset    int           `yaml:"subset" max:"1000000000"` // endpoints used at most; 0: all
	SlowStart time.Duration `yaml:"slow_start"`              // until a new endpoint has its weight; 0: at once
	Panic     float64       `yaml:"panic" in:"[0,1]"`        // share of bad endpoints above which all count; 0: when all are bad
}

// Outlier ejects endpoints that do worse than they should.
type Outlier struct {
	Consecutive int           `yaml:"consecutive" max:"1000000000"` // failures in a row; 0: not looked at
	SuccessRate float64       `yaml:"success_rate" in:"[0,1]"`      // ejected below it; 0: not looked at
	Latency     int           `yaml:"latency" max:"1000"`           // mean latency, in medians of the others; 0: not looked at
	Base        time.Duration `yaml:"base" min:"1ms" max:"1h"`      // of the ejection time
	MaxEjected  float64       `yaml:"max_ejected" in:"[0,1]"`       // share of endpoints; 0: none is ejected
}

// Breaker stops the calls of a service that only fails. The zero Consecutive is
// off.
type Breaker struct {
	Consecutive int           `yaml:"consecutive" max:"1000000000"`  // failed requests in a row that open it; 0: never
	Open        time.Duration `yaml:"open" min:"1ms"`                // until the first probe
	HalfOpen    int           `yaml:"half_open" min:"1" max:"65535"` // probes at a time
}

// RateLimit bounds the requests a second, over all loops of the process. The zero
// Rate is off.
type RateLimit struct {
	Rate  int `yaml:"rate" max:"1000000"`  // requests per second; 0: no limit
	Burst int `yaml:"burst" max:"1000000"` // at once, after a pause; 0: one second's worth
}

// AccessLog is a line of JSON for each request that Sample, Slow or Failed asks
// for. The zero Path is off.
type AccessLog struct {
	Path   string        `yaml:"path"`                                      // a file, stdout or stderr; "": no access log
	Sample float64       `yaml:"sample" in:"[0,1]"`                         // share of all requests
	Slow   time.Duration `yaml:"slow"`                                      // those that take so long; 0: not for that
	Failed bool          `yaml:"failed"`                                    // those that end with 5xx, or an answer of the sidecar's own
	Buffer int64         `yaml:"buffer" unit:"size" min:"64KiB" max:"1GiB"` // lines that wait to be written; more are dropped
}

// Tracing exports the spans of sampled requests over OTLP/HTTP. The zero Endpoint is
// off.
type Tracing struct {
	Endpoint    string            `yaml:"endpoint"`                  // URL of the receiver, to which /v1/traces is added; "": off
	Sample      float64           `yaml:"sample" in:"[0,1]"`         // share of the requests that come without a trace
	ServiceName string            `yaml:"service_name"`              // service.name of the spans
	Headers     map[string]string `yaml:"headers" secret:"true"`     // sent with each export
	Queue       int               `yaml:"queue" min:"1" max:"65536"` // requests whose spans wait for the receiver
	Timeout     time.Duration     `yaml:"timeout" min:"1ms"`         // of one export, retries included
}

// Register announces a listener of this sidecar as an endpoint of a service.
type Register struct {
	Service   string `yaml:"service"`   // the name under which others find it
	Listener  string `yaml:"listener"`  // one of Config.Listeners
	Advertise string `yaml:"advertise"` // host:port that others dial
	Weight    int    `yaml:"weight" min:"1" max:"65535"`
	Check     Check  `yaml:"check"` // of the application behind the listener
}

// Check is an active health check: of each endpoint of a service, or of the
// application behind a registration. With neither HTTP nor TCP there is none.
type Check struct {
	HTTP      string        `yaml:"http"` // path to GET; "": no HTTP check
	TCP       bool          `yaml:"tcp"`  // connect only
	Interval  time.Duration `yaml:"interval" min:"10ms"`
	Timeout   time.Duration `yaml:"timeout" min:"1ms"`             // of one check
	Healthy   int           `yaml:"healthy" min:"1" max:"65535"`   // passes in a row that make the unhealthy healthy
	Unhealthy int           `yaml:"unhealthy" min:"1" max:"65535"` // failures in a row that make the healthy unhealthy
}

// Enabled tells whether anything is checked.
func (c *Check) Enabled() bool { return c.HTTP != "" || c.TCP }

// Limits bound what a peer can make the sidecar hold. Sizes are in bytes.
type Limits struct {
	Message     int64 `yaml:"message" unit:"size" min:"1KiB" max:"1GiB"` // body handled as a whole; longer ones stream
	Header      int64 `yaml:"header" unit:"size" min:"1KiB" max:"1GiB"`  // start line and header section
	Headers     int   `yaml:"headers" min:"1" max:"65535"`               // fields per message
	Pipelined   int   `yaml:"pipelined" min:"1" max:"65535"`             // requests waiting on a downstream connection
	Requests    int   `yaml:"requests" max:"1000000000"`                 // answered on a downstream HTTP connection; 0: no limit
	Connections int   `yaml:"connections" min:"1" max:"1000000000"`      // downstream ones, per process
	PerSource   int   `yaml:"per_source" max:"1000000000"`               // of these, from one IPv4 address or IPv6 /64; 0: no limit
	Buffered    int64 `yaml:"buffered" unit:"size" min:"1MiB" max:"1024GiB"`
}

// Timeouts of downstream connections.
type Timeouts struct {
	Detect time.Duration `yaml:"detect" min:"1ms"` // for a redirected connection to show that it is HTTP
	Header time.Duration `yaml:"header" min:"1ms"` // first byte to end of the header section
	Body   time.Duration `yaml:"body" min:"1ms"`   // end of the header section to end of the body
	Idle   time.Duration `yaml:"idle" min:"1ms"`   // between requests
	Write  time.Duration `yaml:"write" min:"1ms"`  // for the peer to take what was written
	Drain  time.Duration `yaml:"drain"`            // for requests in flight at shutdown
}
