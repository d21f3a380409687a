package archtest

// layer names packages and what they may import of the module.
type layer struct {
	packages []string // patterns, see matchesAny
	may      []string // patterns; a package may always import itself; NAME is the last element of its path
	why      string
}

// session and upstream are what each protocol's folder may import besides its codec.
var (
	session = []string{
		"proxy/downstream", "proxy/allow", "proxy/identity", "proxy/exchange", "proxy/race", "proxy/shard", "proxy/fault", "proxy/loop", "proxy/telemetry/...", "proxy/config", "protocol",
	}
	upstream = []string{"proxy/race", "proxy/service", "proxy/shard", "proxy/fault", "proxy/loop", "proxy/config", "protocol"}
)

// layers say which way imports point. The first layer that matches a package
// counts. A package without a layer fails, so a new one gets its place here.
var layers = []layer{
	{
		[]string{"cmd/remora"},
		[]string{
			"cmd/remora/...", "sidecar", "proxy/reactor/engine", "proxy/config", "proxy/certs", "proxy/handover", "docs", "internal/...",
			"proxy/route", "protocol", "protocol/http1", // to try routes
		},
		"the binary is command lines; package sidecar runs",
	},
	{
		[]string{"sidecar"},
		[]string{
			"sidecar/...", "fleet", "fleet/store", "proxy/admin", "proxy/overload", "proxy/telemetry/...", "proxy/reactor", "proxy/reactor/engine", "proxy/reactor/unixsock", "proxy/stream", "proxy",
			"proxy/loop", "proxy/config", "proxy/certs", "proxy/handover", "registry/...", "internal/...",
		},
		"the sidecar wires the drivers to the core; what it does itself belongs into a package",
	},
	{
		[]string{"sidecar/..."},
		[]string{"proxy/reactor", "proxy/reactor/unixsock", "internal/..."},
		"parts of the sidecar that know no configuration",
	},
	{
		[]string{"cmd/remora-lab"},
		[]string{"lab/...", "proxy/config", "internal/..."},
		"the lab binary is a command line around lab",
	},
	{
		[]string{"cmd/..."},
		[]string{"..."},
		"commands are at the top",
	},
	{
		[]string{"e2e/..."},
		[]string{"..."},
		"tests of real processes may use all that their peers could, and the lab",
	},
	{
		[]string{"lab/..."},
		[]string{"..."},
		"the lab may use all of the sidecar, so that a demo needs one binary",
	},
	{
		[]string{"proxy/admin"},
		[]string{
			"proxy", "proxy/allow", "proxy/overload", "proxy/fair/...", "proxy/fault", "proxy/telemetry/...", "proxy/config", "proxy/hedge/...",
			"lb/outlier", "registry", "protocol", "internal/...",
		},
		"admin shows what the core reports, and knows no driver",
	},
	{
		[]string{"proxy/stream"},
		[]string{
			"proxy", "proxy/downstream", "proxy/race", "proxy/shard", "proxy/allow", "proxy/fair/...", "proxy/fault", "proxy/forwarded", "proxy/loop", "proxy/telemetry/accesslog",
			"proxy/telemetry/stats", "proxy/config", "proxy/proxyproto", "proxy/reactor/hello", "proxy/reactor/kernel", "proxy/stream/pipe", "protocol/...", "internal/hostname",
			"internal/eyeballs", "internal/panics", "internal/special",
		},
		"streams run on goroutines beside the core: of a loop they see who picks endpoints for them",
	},
	{
		[]string{"proxy/sim/mesh"},
		[]string{
			"proxy", "proxy/sim", "proxy/fault", "proxy/loop", "proxy/telemetry/stats", "proxy/config", "proxy/hedge", "protocol", "protocol/http1", "protocol/http2",
			"registry",
		},
		"a mesh is sidecars on the simulator, and callers and applications that speak HTTP",
	},
	{[]string{"proxy/stream/pipe"}, []string{"proxy/loop"}, "a pipe carries bytes, whatever they are"},
	{[]string{"proxy/sim/cores"}, nil, "a calculation, which needs nothing"},
	{[]string{"proxy/sim/queues"}, []string{"lb", "lb/spare", "proxy/hedge", "proxy/hedge/class"}, "balancing and hedging alone, on virtual time"},
	{
		[]string{"proxy/proxytest"},
		[]string{"..."},
		"tests of the core share it; no command imports it",
	},
	{
		[]string{"proxy/reactor", "proxy/sim", "proxy/conformance"},
		[]string{
			"proxy/loop", "proxy/fair/...", "proxy/reactor/...", "proxy/proxyproto", "proxy/telemetry/stats", "proxy/conformance", "proxy/certs", "proxy/identity",
			"protocol/http1", "internal/...",
		},
		"a driver implements the loop, and knows nothing of requests",
	},
	{
		[]string{"proxy/reactor/epoll", "proxy/reactor/gnet"},
		[]string{"proxy/reactor/kernel"},
		"an engine waits for descriptors, and knows no connection",
	},
	{[]string{"proxy/reactor/backlogtest"}, []string{"internal/eventually"}, "support of tests asks the kernel, and knows no connection"},
	{
		[]string{"proxy/reactor/engine"},
		[]string{"proxy/reactor/kernel", "proxy/reactor/epoll", "proxy/reactor/gnet"},
		"the list of engines, which nothing else knows by name",
	},
	{
		[]string{"proxy/fair"},
		[]string{"proxy/fair/share", "proxy/loop"},
		"bounds and shares of any kind of holder",
	},
	{[]string{"proxy/fair/share"}, nil, "who has how much is counted without knowing of what"},
	{
		[]string{"proxy/reactor/hello", "proxy/reactor/unixsock", "proxy/proxyproto"},
		nil,
		"first bytes and files of sockets: they know no connection of the sidecar",
	},
	{
		[]string{"proxy/telemetry/otlp"},
		[]string{"proxy/telemetry/trace", "proxy/config", "internal/unixaddr", "internal/backoff"},
		"spans are exported from plain records, off the loops; the core does not know how",
	},
	{
		[]string{"proxy"},
		[]string{
			"proxy/downstream/...", "proxy/upstream/...", "proxy/filter/...", "proxy/exchange", "proxy/race", "proxy/service", "proxy/limit", "proxy/allow", "proxy/forwarded", "proxy/route",
			"proxy/shard", "proxy/fault", "proxy/loop", "proxy/telemetry/...", "proxy/config", "protocol", "lb", "registry", "internal/unixaddr",
		},
		"proxy wires the core; drivers, admin and registry clients reach it, never the other way",
	},
	{
		[]string{"proxy/downstream/http"},
		append([]string{"protocol/http1"}, session...),
		"a session knows what sessions share and its own codec, and never an upstream",
	},
	{
		[]string{"proxy/downstream/link"},
		append([]string{"protocol/http1", "protocol/link", "proxy/mux", "proxy/mux/linkconn", "lb"}, session...),
		"a session knows what sessions share and its own codec, and never an upstream",
	},
	{
		[]string{"proxy/downstream/http2"},
		append([]string{"protocol/http1", "protocol/http2", "proxy/mux", "proxy/mux/httpstream"}, session...),
		"a session knows what sessions share and its own codec, and never an upstream",
	},
	{
		[]string{"proxy/downstream/*"},
		append([]string{"protocol/NAME", "proxy/mux"}, session...),
		"a session knows what sessions share and its own codec, and never an upstream",
	},
	{
		[]string{"proxy/downstream"},
		[]string{
			"proxy/exchange", "proxy/race", "proxy/allow", "proxy/forwarded", "proxy/identity", "proxy/route", "proxy/shard", "proxy/fault", "proxy/loop", "proxy/telemetry/...",
			"proxy/config", "protocol", "protocol/http1", "protocol/link", "internal/hostname",
		},
		"what sessions share knows no upstream",
	},
	{
		[]string{"proxy/upstream"},
		nil,
		"each protocol has a folder; there is no code of all",
	},
	{
		[]string{"proxy/upstream/byname"},
		append([]string{"internal/hostname", "proxy/fair/share"}, upstream...),
		"it picks a pool by the name of a request, and knows no connection",
	},
	{
		[]string{"proxy/upstream/http"},
		append([]string{"protocol/http1", "proxy/upstream/byname", "proxy/unwanted"}, upstream...),
		"an upstream knows attempts and its own codec, and never a session or an exchange",
	},
	{
		[]string{"proxy/upstream/link"},
		append([]string{"protocol/http1", "protocol/link", "proxy/mux", "proxy/mux/linkconn", "lb"}, upstream...),
		"an upstream knows attempts and its own codec, and never a session or an exchange",
	},
	{
		[]string{"proxy/upstream/http2"},
		append([]string{"protocol/http1", "protocol/http2", "proxy/mux", "proxy/mux/httpstream", "proxy/upstream/byname"}, upstream...),
		"an upstream knows attempts and its own codec, and never a session or an exchange",
	},
	{
		[]string{"proxy/upstream/*"},
		append([]string{"protocol/NAME", "proxy/mux"}, upstream...),
		"an upstream knows attempts and its own codec, and never a session or an exchange",
	},
	{
		[]string{"proxy/caching/..."},
		[]string{"protocol", "proxy/caching/store", "internal/hostname"},
		"what a cache may do, and where it keeps responses, is decided without requests in flight",
	},
	{
		[]string{"proxy/filter/*"},
		append([]string{"proxy/exchange", "proxy/caching/...", "proxy/route", "proxy/identity", "proxy/telemetry/stats"}, upstream...),
		"a filter is a phase that a route adds: it knows the exchange, and no other filter, session or upstream",
	},
	{
		[]string{"proxy/exchange"},
		[]string{
			"proxy/race", "proxy/service", "proxy/shard", "lb", "proxy/affinity", "proxy/limit", "proxy/hedge", "proxy/hedge/forecast", "proxy/allow", "proxy/identity", "proxy/forwarded", "proxy/route",
			"proxy/fault", "proxy/telemetry/accesslog", "proxy/telemetry/stats", "proxy/telemetry/trace", "proxy/loop", "proxy/config", "protocol",
		},
		"an exchange knows no protocol, no session and no connection: these reach it by the interfaces of caller.go",
	},
	{
		[]string{"proxy/race"},
		[]string{
			"proxy/service", "proxy/shard", "proxy/fifo", "proxy/fault", "proxy/hedge", "proxy/affinity", "proxy/telemetry/accesslog", "proxy/telemetry/stats", "proxy/telemetry/trace",
			"proxy/loop", "proxy/config", "lb", "lb/spare", "protocol",
			"protocol/http1", // the decoder of a stream's body
			"protocol/link",  // the token of a stream
		},
		"a race knows a request as bytes with a deadline and a key, and neither its caller nor its filters",
	},
	{
		[]string{"proxy/service"},
		[]string{
			"proxy/shard", "proxy/fifo", "proxy/limit", "proxy/affinity", "proxy/hedge/...", "proxy/unwanted", "proxy/fault", "proxy/telemetry/stats", "proxy/loop", "proxy/config", "lb", "lb/outlier", "lb/probe",
			"registry", "protocol",
		},
		"a service is what its requests share; it knows none of them",
	},
	{[]string{"proxy/fifo"}, nil, "a queue knows nothing of its elements"},
	{
		[]string{"proxy/affinity"},
		[]string{"proxy/config", "proxy/loop", "proxy/route", "protocol"},
		"it makes keys of requests, and knows no endpoint",
	},
	{
		[]string{"proxy/limit"},
		[]string{"proxy/fault", "proxy/config", "proxy/telemetry/stats", "proxy/limit/adaptive"},
		"limits know nothing of requests",
	},
	{
		[]string{"proxy/mux/linkconn"},
		[]string{"proxy/mux", "proxy/shard", "proxy/loop", "protocol/link", "proxy/telemetry/stats"},
		"both ends of a link share it, so it knows neither end and no exchange",
	},
	{
		[]string{"proxy/mux/httpstream"},
		[]string{"proxy/loop", "protocol", "protocol/http1"},
		"it translates between a pipe's text and events, and knows no codec of frames",
	},
	{
		[]string{"proxy/mux"},
		[]string{"proxy/loop", "proxy/shard"},
		"multiplexed connections share it, of whatever protocol",
	},
	{
		[]string{"proxy/shard"},
		[]string{"proxy/fair/share", "proxy/fault", "proxy/loop", "proxy/telemetry/accesslog", "proxy/telemetry/stats", "proxy/telemetry/trace", "proxy/config", "protocol", "internal/printable"},
		"what a loop lends knows no service, no session, no route and no wire format",
	},
	{
		[]string{"proxy/route"},
		[]string{"proxy/config", "protocol", "internal/hostname"},
		"finding a route is pure, and knows no service",
	},
	{
		[]string{"proxy/allow"},
		[]string{"proxy/config", "proxy/identity", "protocol"},
		"who may call what is decided by the request and the caller's names alone",
	},
	{
		[]string{"proxy/forwarded"},
		[]string{"proxy/loop", "proxy/config", "protocol"},
		"what a client may say of itself is decided by names and addresses alone",
	},
	{
		[]string{"proxy/telemetry/accesslog"},
		[]string{"proxy/loop", "proxy/fault", "proxy/config", "proxy/telemetry/stats", "proxy/telemetry/trace", "protocol", "internal/printable"},
		"the exchange fills plain records; the log knows no exchange",
	},
	{
		[]string{"proxy/telemetry/stats"},
		[]string{"proxy/fault", "proxy/hedge/...", "lb/outlier", "protocol"},
		"counters are plain data that everybody may use",
	},
	{
		[]string{"proxy/telemetry/trace"},
		[]string{"proxy/config", "protocol"},
		"trace context and records are plain data that everybody may use",
	},
	{
		[]string{"proxy/fault"},
		[]string{"protocol/..."},
		"a failure is a value: what it means to callers and peers, and nothing of the proxy",
	},
	{
		[]string{"proxy/certs"},
		[]string{"proxy/identity"},
		"certificates are read and verified here; names are compared by a package that the core may use",
	},
	{
		[]string{"proxy/config"},
		[]string{"lb", "internal/srvname", "internal/unixaddr", "internal/hostname", "internal/bindaddr"},
		"settings are plain structs that everybody may read; of what they set it knows only the names of policies",
	},
	{
		[]string{"proxy/hedge/choice"},
		[]string{"proxy/hedge/histogram"},
		"a delay is chosen by latencies alone",
	},
	{
		[]string{"proxy/hedge/class"},
		[]string{"proxy/hedge/choice", "proxy/hedge/histogram"},
		"a class is a number with latencies and their best delay, and knows no route",
	},
	{
		[]string{"proxy/hedge/forecast"},
		[]string{"proxy/hedge/budget", "proxy/hedge/draw", "proxy/hedge/histogram", "proxy/hedge/worth"},
		"a forecast spends and judges as hedging does, and knows no route",
	},
	{
		[]string{"proxy/hedge"},
		[]string{"proxy/hedge/..."},
		"when to hedge is decided by numbers alone: each model is a package below, and knows no other",
	},
	{
		[]string{"proxy/loop", "proxy/hedge/budget", "proxy/hedge/draw", "proxy/hedge/histogram", "proxy/hedge/periodic", "proxy/hedge/worth", "proxy/limit/adaptive", "proxy/unwanted", "proxy/identity", "proxy/handover", "proxy/overload", "proxy/reactor/kernel", "docs"},
		[]string{"internal/unixaddr", "internal/hostname", "internal/bindaddr"},
		"a leaf: it can be read, tested and reused on its own",
	},
	{
		[]string{"protocol/*", "protocol/http2/hpack"},
		[]string{"protocol", "protocol/NAME/hpack", "internal/hostname"},
		"a codec knows the neutral messages and no other codec",
	},
	{
		[]string{"protocol"},
		nil,
		"the neutral messages depend on no wire format",
	},
	{
		[]string{"lb"},
		[]string{"registry", "lb/..."},
		"picking is pure; of the rest it knows only the registry's plain types",
	},
	{
		[]string{"lb/spare", "lb/outlier", "lb/probe", "lb/log2"},
		nil,
		"a model is numbers alone, and knows no endpoint",
	},
	{
		[]string{"fleet"},
		[]string{"proxy/config", "proxy/telemetry/stats"},
		"who runs which revision is decided without etcd and without a sidecar",
	},
	{
		[]string{"fleet/store"},
		[]string{"fleet", "registry/etcd"},
		"the keys of a fleet are read and written over the connection of the registry",
	},
	{
		[]string{"registry/dns", "registry/health"},
		[]string{"registry", "registry/reach", "internal/srvname", "internal/tasks", "internal/unixaddr", "internal/eyeballs"},
		"it decorates any source, so it knows none: host names of a snapshot become addresses, or endpoints get verdicts",
	},
	{
		[]string{"registry/reach"},
		[]string{"registry", "internal/special"},
		"one rule for the addresses of all sources, so it knows none",
	},
	{
		[]string{"registry/registrytest"},
		[]string{"registry", "registry/reach"},
		"the suite knows the interfaces that it checks, and no registry",
	},
	{
		[]string{"registry/kept", "registry/several", "registry/pursuit"},
		[]string{"registry"},
		"they are for any source, and know none",
	},
	{
		[]string{"registry/zookeeper/session"},
		[]string{"internal/backoff"},
		"a session with ZooKeeper knows no services",
	},
	{
		[]string{"registry/*"},
		[]string{"registry", "registry/dns", "registry/kept", "registry/reach", "registry/pursuit", "registry/NAME/session", "internal/backoff", "internal/srvname", "internal/tasks", "internal/unixaddr"},
		"a source of endpoints knows the registry's types, puts dns around itself, and knows no other source",
	},
	{
		[]string{"registry"},
		[]string{"internal/atomicfile"},
		"snapshots are plain types that anyone may use",
	},
	{[]string{"internal/testcerts"}, []string{"internal/mint"}, "certificates for tests are made as those of the lab are"},
	{
		[]string{"internal/..."},
		nil,
		"helpers of the build and of tests are leaves",
	},
	{
		[]string{"scripts/...", "docker/...", "examples/...", "oss-fuzz"},
		[]string{"..."},
		"not part of the sidecar",
	},
}

// home is a third-party library and the packages that may import it.
type home struct {
	library  string // import path, or the start of it
	packages []string
	why      string
}

// homes lists the one place of each library. A library without a home fails.
var homes = []home{
	{"github.com/panjf2000/gnet/", []string{"proxy/reactor/gnet"},
		"it is one of the engines; connections do not know which engine waits for them"},
	{"github.com/cespare/xxhash/", []string{"proxy/affinity"},
		"keys must be the same in all processes, and long ones cheap"},
	{"github.com/cloudwego/netpoll", []string{"lab/server"},
		"it waits and reads for the lab's servers, whose handlers block; the sidecar has loops of its own"},
	{"go.etcd.io/etcd/server/", []string{"lab/...", "registry/etcd_test"},
		"the sidecar carries no etcd server; the lab and the tests of the client do"},
	{"go.etcd.io/etcd/", []string{"registry/etcd/...", "fleet/store", "lab/...", "sidecar_test", "e2e/..."},
		"the core sees snapshots; how they are fetched is one package's business"},
	{"google.golang.org/grpc", []string{"registry/etcd/...", "registry/health_test", "lab/...", "e2e/..."},
		"it comes with the etcd client; tests of health checks and of calls have a real server"},
	{"go.uber.org/zap", []string{"registry/etcd/...", "lab/..."},
		"it comes with the etcd client; the sidecar logs with log/slog"},
	{"github.com/goccy/go-yaml", []string{"proxy/config", "registry/kubernetes", "cmd/remora_test"},
		"the rest of the program sees plain structs"},
	{"go.yaml.in/yaml/", []string{"cmd/remora/inject"},
		"it has the places of all nodes, to which a manifest is added, and reads as kubectl does"},
	{"sigs.k8s.io/yaml", []string{"cmd/remora/inject_test"},
		"kubectl reads manifests with it, as YAML 1.1; tests read by it what the command writes"},
	{"github.com/prometheus/", []string{"proxy/admin/..."},
		"the core counts in its own integers; admin exports them"},
	{"go.opentelemetry.io/proto/otlp/", []string{"proxy/telemetry/otlp"},
		"the core records in its own structs; one package makes OpenTelemetry's messages of them"},
	{"google.golang.org/protobuf/", []string{"proxy/telemetry/otlp"},
		"it encodes OpenTelemetry's messages; the sidecar's own formats need none"},
	{"github.com/HdrHistogram/", []string{"lab/...", "proxy/sim/queues"},
		"it measures in the lab and in simulations; the sidecar has its own small histogram"},
	{"github.com/spf13/cobra", []string{"cmd/..."},
		"command lines are parsed in commands"},
	{"github.com/google/pprof/profile", []string{"cmd/remora/adminclient", "cmd/remora/flame", "e2e/..."},
		"the sidecar sends profiles as the runtime makes them; the command draws them"},
	{"github.com/valyala/bytebufferpool", []string{"protocol/...", "proxy/...", "proxy/reactor/...", "proxy/stream/..."},
		"the buffers of messages have one owner each; nothing else needs them"},
	{"github.com/apache/dubbo-go-hessian2", []string{"protocol/dubbo_test", "lab/..."},
		"it allocates what a length says and knows Java's classes by a global table; the sidecar has its own hessian2, tested against it"},
	{"github.com/santhosh-tekuri/jsonschema/", []string{"_test"},
		"it checks files by the published schema in tests; the sidecar has its own decoder, which knows lines"},
	{"github.com/gorilla/websocket", []string{"_test"},
		"it is a peer in tests; the sidecar passes WebSockets on and speaks none"},
	{"go.uber.org/goleak", []string{"_test", "internal/leaktest"},
		"it looks for leaked goroutines in tests"},
	{"golang.org/x/net/dns/dnsmessage", []string{"registry/dns"},
		"name servers are asked in one package"},
	{"golang.org/x/net/http2", []string{"protocol/http2_test", "protocol/http2/hpack_test", "proxy_test", "proxy/stream_test", "proxy/upstream/http2_test", "e2e/...", "lab/..."},
		"it is a peer in the lab and in tests of the codec, which allocates nothing per request"},
	{"golang.org/x/sys/", []string{"proxy/reactor/...", "proxy/stream/...", "lab/...", "cmd/remora/top", "e2e/...", "internal/intercept_test", "internal/redirecttest"},
		"system calls belong to the drivers, to who owns the terminal, and to a test between network namespaces"},
}
