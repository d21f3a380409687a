package config

import (
	"time"

	"github.com/remora-proxy/remora/lb"
)

// Lists of names that a file may use. A new protocol or registry adds its name
// here, and nowhere else in this package. A name has a constant only if a default or a
// rule of this package mentions it.
var (
	// Protocols are what services and endpoints may speak.
	Protocols = []string{ProtocolHTTP, ProtocolHTTP2, ProtocolGRPC, ProtocolDubbo, ProtocolLink, ProtocolTCP}

	// ListenerProtocols are what listeners may speak. One with http takes HTTP/2 as well.
	ListenerProtocols = []string{ProtocolHTTP, ProtocolDubbo, ProtocolLink, ProtocolTCP}

	// Registries are the sources of endpoints.
	Registries = []string{DiscoverEtcd, DiscoverStatic}

	// Engines may wait for the sockets of the loops.
	Engines = []string{EngineAuto, "epoll", "gnet"}
)

// lists are the lists by the name in the tag of a field, as in list:"protocols".
var lists = map[string][]string{
	"engines": Engines, "protocols": Protocols, "listener protocols": ListenerProtocols, "registries": Registries, "policies": lb.PolicyNames(),
}

// EngineAuto is the engine that fits the system.
const EngineAuto = "auto"

// Protocols that a default or a rule mentions.
const (
	ProtocolHTTP  = "http"  // HTTP/1.1
	ProtocolHTTP2 = "http2" // HTTP/2
	ProtocolGRPC  = "grpc"  // HTTP/2 with gRPC
	ProtocolLink  = "link"  // the inter-agent protocol
	ProtocolDubbo = "dubbo" // Dubbo 2
	ProtocolTCP   = "tcp"   // opaque bytes
)

// Registries that a default or a rule mentions.
const (
	DiscoverEtcd   = "etcd"   // watch the registry
	DiscoverStatic = "static" // Service.Endpoints
)

// Policies that a default or a rule mentions.
const (
	LBLeastPending   = "least_pending"
	LBConsistentHash = "consistent_hash" // by LB.Hash
)

// Priorities.
const (
	PriorityOnline = "online"
	PriorityBatch  = "batch" // after online
)

// Hedge modes.
const (
	HedgeOff    = "off"    // never hedge
	HedgeShadow = "shadow" // send nothing, report what hedging would do
	HedgeOn     = "on"     // hedge
)

// Values of Hedge.Class; any other is the name of a header.
const (
	ClassSize = "size" // by the size of the body
	ClassNone = "none" // one for all
)

// Names of failures in Retry.On, which a retry follows. Retry.On may also contain a
// status code, such as "503", and the code of a gRPC error.
const (
	RetryConnect = "connect" // no connection, or nothing of the request was sent
	RetryRefused = "refused" // the provider's admission refused it
	RetryReset   = "reset"   // the connection broke before the response, or Retry.PerTryTimeout has passed
	Retry5xx     = "5xx"     // any response with a status of 500 or more
)

// GRPCErrors are the codes of gRPC in Retry.On, in the order of their numbers.
var GRPCErrors = []string{
	"cancelled", "unknown", "invalid-argument", "deadline-exceeded", "not-found", "already-exists", "permission-denied",
	"resource-exhausted", "failed-precondition", "aborted", "out-of-range", "unimplemented", "internal", "unavailable",
	"data-loss", "unauthenticated",
}

// What becomes of escaped slashes.
const (
	SlashesReject   = "reject"   // the request gets 400
	SlashesUnescape = "unescape" // they are slashes
	SlashesKeep     = "keep"     // they are no slashes
)

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

// ViaOn is the value of Config.Via with which messages get the header.
const ViaOn = "on"

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
// The comment of a field with a value is its row in docs/settings.md, where go
// generate writes it. The tag reload says when a changed value takes effect, by
// default for the next request or connection.
//
// Every number and size has a max, so that it fits wherever it is used: 1000000000 is
// no limit to any machine and counted in 32 bits, lengths of Dubbo are of 31 bits, and
// sizes are added up and multiplied. Durations without one are at most maxDuration.
type Config struct {
	Node Node `yaml:"node"`

	// Event loops. 0 means one per whole processor of the CPU quota, at least 1.
	Loops int `yaml:"loops" max:"256" reload:"restart"`

	// Engine that waits for the sockets of the loops. `auto` takes `epoll` where it works, otherwise `gnet`. `REMORA_ENGINE` and `remora run --engine` override it.
	Engine string `yaml:"engine" list:"engines" reload:"restart"`

	// `Via` in requests and responses that are passed on. Off, requests have [`CDN-Loop`](headers.md#loops) instead, which ends loops likewise.
	Via string `yaml:"via" oneof:"off on"`

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

	// Warnings are about keys that have no effect.
	Warnings Errors `yaml:"-"`
}

// Node identifies this sidecar.
type Node struct {
	// Unique name: part of its key in etcd, and the seed of its subset. No space, `/` or `@`.
	ID string `yaml:"id" reload:"restart"`
	// Zone of this sidecar. Requests stay in it while its endpoints can carry them.
	Zone string `yaml:"zone" reload:"restart"`
}

// Log is the sidecar's own log, on standard error.
type Log struct {
	// Lowest level logged. `/log/level` changes it too.
	Level string `yaml:"level" oneof:"debug info warn error"`
	// JSON lines, or text for people.
	Format string `yaml:"format" oneof:"json text" reload:"restart"`
}

// Admin is the admin API.
type Admin struct {
	// As of a listener. Empty means no admin API. Off loopback it needs a token.
	Address string `yaml:"address" reload:"restart"`
	// Bearer token of callers, except at `/healthz` and `/readyz`.
	Token string `yaml:"token" secret:"true" reload:"restart"`
	// Profiles of the process under `/debug/pprof/`, for `remora profile`. Off, callers get 403.
	Profiles bool `yaml:"profiles"`
}

// Registry configures where services are found and registered.
type Registry struct {
	Etcd Etcd `yaml:"etcd"`
	// Directory for the last known endpoints: lets the sidecar start while etcd is down. Empty means none.
	CacheDir string `yaml:"cache_dir" reload:"restart"`
}

// Etcd is the etcd cluster of the registry.
type Etcd struct {
	// `host:port`, `http://…` or `https://…`. `discover: etcd` and `register` require it.
	// A proxy that the environment names is not used.
	Endpoints []string `yaml:"endpoints" reload:"restart"`
	// Start of every key, `<prefix>/<service>/<node.id>@<address>`. Begins with `/`, does not end with it.
	Prefix string `yaml:"prefix" reload:"restart"`
	// How long a registration outlives a killed sidecar, in whole seconds.
	LeaseTTL time.Duration `yaml:"lease_ttl" min:"1s" reload:"restart"`
	// Requires `password`.
	Username string `yaml:"username" reload:"restart"`
	// Requires `username`. `/config` does not show it.
	Password string `yaml:"password" secret:"true" reload:"restart"`
	TLS      TLS    `yaml:"tls"`
}

// Listener accepts downstream connections.
type Listener struct {
	// Required and unique. `register`, logs and metrics use it.
	Name string `yaml:"name" reload:"new listener"`
	// Required. `ip:port`, `unix:/path` or `unix:@name`. `0.0.0.0` means all IPv4 addresses, `[::]` or no host all addresses, port 0 any port. A name is resolved at the start.
	Address string `yaml:"address" reload:"new listener"`
	// Mode of the file of a Unix socket, such as `"0660"`. Empty means that the umask decides.
	Mode FileMode `yaml:"mode" reload:"new listener"`
	// Required. What peers speak.
	Protocol string `yaml:"protocol" list:"listener protocols" reload:"new listener"`
	// Service of all traffic. Empty means by `routes`. Required for `link`.
	Service string `yaml:"service"`
	// A `link` listener off loopback needs no `tls`: its network is trusted.
	Insecure bool `yaml:"insecure"`
	// Accepts connections that the kernel redirects. `http` only.
	Transparent bool `yaml:"transparent" reload:"new listener"`
	// Accepted connections, within `limits.connections`. One more is closed at once. 0 means no own limit.
	Connections int `yaml:"connections" max:"1000000000" reload:"new listener"`

	Path Path `yaml:"path"`

	// Requests of a proxy's client that no route matches: 404 `no-route`, or on to the host that they name. `http` only.
	Unrouted string `yaml:"unrouted" oneof:"refuse direct"`
	Direct   Direct `yaml:"direct"`

	// Who tells a client that waits with its body (`Expect: 100-continue`) to send it: the sidecar, or the application. `http` only.
	Expect string `yaml:"expect" oneof:"answer forward"`

	RateLimit     RateLimit     `yaml:"rate_limit"`
	ProxyProtocol ProxyProtocol `yaml:"proxy_protocol"`
	Forwarded     Forwarded     `yaml:"forwarded"`
	Allow         Allow         `yaml:"allow"`

	TLS ListenerTLS `yaml:"tls"`
}

// Who answers `Expect: 100-continue`.
const (
	ExpectAnswer  = "answer"  // the sidecar
	ExpectForward = "forward" // the application
)

// Listener returns the listener with a name, or nil.
func (c *Config) Listener(name string) *Listener {
	for i := range c.Listeners {
		if c.Listeners[i].Name == name {
			return &c.Listeners[i]
		}
	}
	return nil
}

// Continues reports whether a reload can make was into l. Otherwise l is a new listener, which takes over the
// sockets of those that end at its address.
func (l *Listener) Continues(was *Listener) bool {
	return l.Name == was.Name && l.Address == was.Address && l.Mode == was.Mode && l.Protocol == was.Protocol &&
		l.Transparent == was.Transparent && l.Connections == was.Connections &&
		l.ProxyProtocol.Enabled() == was.ProxyProtocol.Enabled() && l.TLS.Enabled() == was.TLS.Enabled()
}

// Path brings the path of each request into one form before a route is looked for. The service
// gets that form. It applies to HTTP listeners without a fixed service, and only if a route has
// a condition on the path.
type Path struct {
	// Decodes escapes of unreserved characters and removes dot segments. Disguised dot segments and malformed escapes: 400 `bad-path`.
	Normalize bool `yaml:"normalize"`
	// Merges slashes that follow each other.
	MergeSlashes bool `yaml:"merge_slashes"`
	// `%2F`, `%5C` and `\` in a path: 400 `bad-path`, a `/` instead, or no change.
	EscapedSlashes string `yaml:"escaped_slashes" oneof:"reject unescape keep"`
}

// Limits bound what a peer can make the sidecar hold. Sizes are in bytes.
type Limits struct {
	// Largest body that is handled whole. A longer one is a stream. At most `limits.buffered`.
	Message int64 `yaml:"message" unit:"size" min:"1KiB" max:"1GiB" reload:"next message; on links next link"`
	// Request line and header section. More: 431 `header-too-large`, 414 `target-too-long`.
	Header int64 `yaml:"header" unit:"size" min:"1KiB" max:"1GiB" reload:"next message; on links next link"`
	// Header lines. All cookies of a request over HTTP/2 count as one. More: 431 `too-many-headers`.
	Headers int `yaml:"headers" min:"1" max:"65535" reload:"next message; on links next link"`
	// Requests received but not answered on one HTTP connection. More: 429 `too-many-pipelined`.
	Pipelined int `yaml:"pipelined" min:"1" max:"65535"`
	// Requests on one HTTP connection, which then closes. 0 means no limit.
	Requests int `yaml:"requests" max:"1000000000"`
	// Accepted connections of the process. One more is closed at once.
	Connections int `yaml:"connections" min:"1" max:"1000000000" reload:"restart"`
	// Accepted connections per IPv4 address or IPv6 /64. One more is closed at once. 0 means a quarter of all, off loopback. Those of Unix sockets do not count.
	PerSource int `yaml:"per_source" max:"1000000000" reload:"restart"`
	// Streams at a time. One more takes the place of the oldest one of the source that has the most, or gets 503 `too-many-streams`.
	Streams int `yaml:"streams" min:"1" max:"1000000000"`
	// Connections of the admin API. Another connection closes a connection of the source that has the most, which has waited longest for a request. A quarter is for sources that have [checked the health](operations.md#who-may-call-the-admin-api).
	AdminConnections int `yaml:"admin_connections" min:"1" max:"65536" reload:"restart"`
	// Messages in memory. Above it, large holders get 503 `overloaded`; a quarter above it, 503 `shed`.
	Buffered int64 `yaml:"buffered" unit:"size" min:"1MiB" max:"1024GiB"`

	HTTP2 HTTP2 `yaml:"http2"`
}

// HTTP2 are the limits of a client's connection by HTTP/2. All but Streams and Continuations bound
// counts of what the client sends without a request or data in return: each response takes one off
// each count, and each second a tenth of the limit. Each DATA frame with data, either way, takes two
// off Others, and one off the rest but Resets and Provoked. Above a bound the connection ends with GOAWAY and
// ENHANCE_YOUR_CALM, and a failure `http2-flood` is counted.
type HTTP2 struct {
	// Requests at a time on a connection, as the client is told. One more is refused.
	Streams int `yaml:"streams" min:"1" max:"4096" reload:"next connection"`
	// RST_STREAM received in the first second of a request.
	Resets int `yaml:"resets" min:"1" max:"1000000" reload:"next connection"`
	// Errors of the client for which a stream is reset.
	Provoked int `yaml:"provoked" min:"1" max:"1000000" reload:"next connection"`
	// CONTINUATION frames of one header section.
	Continuations int `yaml:"continuations" min:"1" max:"65536" reload:"next connection"`
	// PING received.
	Pings int `yaml:"pings" min:"1" max:"1000000" reload:"next connection"`
	// SETTINGS received that set something.
	Settings int `yaml:"settings" min:"1" max:"1000000" reload:"next connection"`
	// DATA received that has neither data nor END_STREAM.
	EmptyData int `yaml:"empty_data" min:"1" max:"1000000" reload:"next connection"`
	// WINDOW_UPDATE, PRIORITY and empty SETTINGS, and frames of unknown types or of streams that are over. 512 bytes of data sent pay for one.
	Others int `yaml:"others" min:"1" max:"1000000" reload:"next connection"`
}

// Timeouts of downstream connections.
type Timeouts struct {
	// For a redirected connection, or the client of a tunnel, to show that it speaks HTTP. Then it passes through.
	Detect time.Duration `yaml:"detect" min:"1ms" reload:"restart"`
	// From first byte to end of header section. Then 408 `header-timeout`.
	Header time.Duration `yaml:"header" min:"1ms"`
	// From the end of the header section to the end of the body. Then 408 `body-timeout`.
	Body time.Duration `yaml:"body" min:"1ms"`
	// From a response to the next request. Then the connection closes.
	Idle time.Duration `yaml:"idle" min:"1ms"`
	// Bytes a second, over 10 s, at which a client must send or read the body of a stream. A slower sender gets 408 `body-too-slow`, a slower reader a reset. 0 means any rate.
	MinRate int64 `yaml:"min_rate" unit:"size" max:"1GiB"`
	// For a whole stream. Then it is reset. 0 means no limit.
	Stream time.Duration `yaml:"stream"`
	// While the peer reads none of what was written. Then the connection is reset.
	Write time.Duration `yaml:"write" min:"1ms"`
	// While a client that has ended its side of the connection gets nothing: no response, and no more of a stream. Then it counts as gone, and its requests are cancelled. 0 means at once. ([half-closes](strictness.md#half-closes))
	HalfClose time.Duration `yaml:"half_close"`
	// For work in flight when the process or a listener ends. Then it is cut off. 0 means at once.
	Drain time.Duration `yaml:"drain"`
}

// AccessLog writes a line for each request that Sample, Slow or Failed selects.
// With an empty Path it is off.
type AccessLog struct {
	// A file, `stdout` or `stderr`. Empty means off.
	Path string `yaml:"path"`
	// `json`, `common`, `combined`, or text with [placeholders](filters.md#log-formats) such as `{path}`.
	Format string `yaml:"format"`
	// Share of all requests that are logged.
	Sample float64 `yaml:"sample" in:"[0,1]"`
	// Requests at least this long are always logged. 0 means off.
	Slow time.Duration `yaml:"slow"`
	// 5xx and the sidecar's own responses are always logged.
	Failed bool `yaml:"failed"`
	// Bytes of lines that wait to be written. More lines are dropped and counted.
	Buffer int64 `yaml:"buffer" unit:"size" min:"64KiB" max:"1GiB"`
}

// Tracing exports the spans of sampled requests over OTLP/HTTP. With an empty Endpoint
// it is off.
type Tracing struct {
	// URL of the OTLP/HTTP receiver, without `/v1/traces`. Empty means off.
	Endpoint string `yaml:"endpoint"`
	// Share sampled of requests without a trace. Others follow their `traceparent`.
	Sample float64 `yaml:"sample" in:"[0,1]"`
	// `service.name` of the spans.
	ServiceName string `yaml:"service_name"`
	// Sent with each export. `/config` does not show their values.
	Headers map[string]string `yaml:"headers" secret:"true"`
	// Requests whose spans wait for export. Spans of more are dropped and counted.
	Queue int `yaml:"queue" min:"1" max:"65536"`
	// For one export, retries included. Then its spans are dropped and counted.
	Timeout time.Duration `yaml:"timeout" min:"1ms"`
}
