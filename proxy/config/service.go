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

// SpeaksHTTP reports whether the endpoints speak HTTP of any version, unless the registry says
// otherwise.
func (s *Service) SpeaksHTTP() bool {
	return s.Protocol == ProtocolHTTP || s.Protocol == ProtocolHTTP2 || s.Protocol == ProtocolGRPC
}

// Endpoint is a static endpoint. In the file it may be plain "host:port".
type Endpoint struct {
	// `host:port`, `unix:/path` or `unix:@name`, for `discover: static`. An endpoint may be this text alone. Host names are resolved again.
	Address string `yaml:"address"`
	// Capacity relative to an endpoint of weight 1.
	Weight int `yaml:"weight" min:"1" max:"65535"`
	// Zone of the endpoint.
	Zone string `yaml:"zone"`
}

// LB is how an endpoint is picked.
type LB struct {
	// How an endpoint is picked.
	Policy string `yaml:"policy" list:"policies"`
	// Endpoints used at most. 0 means all.
	Subset int `yaml:"subset" max:"1000000000" reload:"new service"`
	// Time until a new endpoint has its whole weight. 0 means at once.
	SlowStart time.Duration `yaml:"slow_start"`
	// If a larger share is unhealthy or ejected, all endpoints are used. 0 or 1 means only if all are.
	Panic  float64 `yaml:"panic" in:"[0,1]"`
	Hash   Hash    `yaml:"hash"`
	Sticky Sticky  `yaml:"sticky"`
}

// Hash is what `consistent_hash` makes the key of a request of.
type Hash struct {
	// Name of the header that is the key of a request. `consistent_hash` requires exactly one of `header`, `cookie`, `query`, `path` and `source`.
	Header string `yaml:"header"`
	// Name of the cookie that is the key.
	Cookie string `yaml:"cookie"`
	// Lifetime of the `cookie` that the sidecar sets if a request has none, at least 1s. 0 means that it sets none.
	TTL time.Duration `yaml:"ttl"`
	// Name of the parameter of the query that is the key. Its value is not decoded.
	Query string `yaml:"query"`
	// The key is the path without its query, of a Dubbo call the interface.
	Path bool `yaml:"path"`
	// The key is the address of the peer, of IPv6 the first 64 bits.
	Source bool `yaml:"source"`
	// An endpoint with this many times its share of the load is passed over. More than 1; 0 means no bound.
	Balance float64 `yaml:"balance" in:"[0,100]"`
}

// Sticky pins the requests of a client to one endpoint. The zero Cookie is off.
type Sticky struct {
	// Name of a cookie that keeps a client at its endpoint. The sidecar sets it, and keeps it from the application. Empty means none.
	Cookie string `yaml:"cookie"`
	// Lifetime of the cookie, at least 1s. 0 means until the browser closes.
	TTL time.Duration `yaml:"ttl"`
	// Text of at least 16 bytes that makes the values of the cookie unguessable. Sidecars with the same text make the same values.
	Secret string `yaml:"secret" secret:"true"`
}

// ofHTTP reports whether the keys are a part of requests that only HTTP has.
func (h *Hash) ofHTTP() bool { return h.Header != "" || h.Cookie != "" || h.Query != "" }

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

// RateLimit bounds the requests a second, over all loops of the process. The zero
// Rate is off.
type RateLimit struct {
	// Requests per second. More get 429 `rate-limited`. 0 means no limit.
	Rate int `yaml:"rate" max:"1000000"`
	// Requests at once after a pause. 0 means one second's worth.
	Burst int `yaml:"burst" max:"1000000"`
	// Requests with a limit of their own: those of a `peer`, of a `path`, or with a value of `header NAME`. Empty means one limit for all. For listeners and routes.
	Key string `yaml:"key"`
}

// Kinds of RateLimit.Key.
const (
	KeyPeer   = "peer"   // the client's address, of IPv6 the first 64 bits
	KeyPath   = "path"   // the path without its query; of a Dubbo call the interface
	KeyHeader = "header" // the value of a header, whose name follows
)

// KeyParts returns the kind of the key, and the name of the header. Both may be empty.
func (l *RateLimit) KeyParts() (kind, header string) {
	kind, header, _ = strings.Cut(l.Key, " ")
	return kind, header
}

// Register announces a listener of this sidecar as an endpoint of a service.
type Register struct {
	// Required. Name under which others find it in etcd.
	Service string `yaml:"service"`
	// Required. Name of the listener.
	Listener string `yaml:"listener"`
	// Required. `host:port` at which others reach the listener.
	Advertise string `yaml:"advertise"`
	// As of an endpoint.
	Weight int   `yaml:"weight" min:"1" max:"65535"`
	Check  Check `yaml:"check" without:"on_down"` // of the application behind the listener
}

// Check is an active health check: of each endpoint of a service, or of the
// application behind a registration. Without HTTP, TCP and GRPC there is none.
type Check struct {
	// Path of a GET that must return 200 to 399.
	HTTP string `yaml:"http"`
	// An accepted connection is enough.
	TCP bool `yaml:"tcp"`
	// Service that `grpc.health.v1` must report as serving, by HTTP/2. `/` means the server as a whole.
	GRPC string `yaml:"grpc"`
	// Port that is asked in place of the endpoint's, without TLS. 0 means the endpoint's.
	Port int `yaml:"port" max:"65535"`
	// Name or IP address that is asked in place of the endpoint's, without TLS. Empty means the endpoint's.
	Host string `yaml:"host"`
	// Of services, not of registrations: what becomes of an unhealthy endpoint. `keep`: its streams stay, and it is used if all are unhealthy. `close`: its streams are cut with `endpoint-down`, and it gets no request before a check has passed again.
	OnDown string `yaml:"on_down" oneof:"keep close"`
	// Time from one check to the next.
	Interval time.Duration `yaml:"interval" min:"10ms"`
	// For one check. Then it has failed.
	Timeout time.Duration `yaml:"timeout" min:"1ms"`
	// Passes in a row that make it healthy again.
	Healthy int `yaml:"healthy" min:"1" max:"65535"`
	// Failures in a row that make it unhealthy.
	Unhealthy int `yaml:"unhealthy" min:"1" max:"65535"`
}

// OnDownClose is the value of Check.OnDown with which streams end.
const OnDownClose = "close"

// Enabled reports whether anything is checked.
func (c *Check) Enabled() bool { return c.HTTP != "" || c.TCP || c.GRPC != "" }

// Beside reports whether the check asks something beside the endpoint, which may speak another
// protocol.
func (c *Check) Beside() bool { return c.Port != 0 || c.Host != "" }
