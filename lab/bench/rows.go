package bench

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Row is one way from the load to the replicas.
type Row struct {
	Name     string
	chain    []hop    // of proxies, from the load to the replicas
	env      []string // of the proxies, added to that of this process
	rest     bool     // the row is also measured at rest
	idle     int      // connections that its proxies must be able to hold
	jobs     []Job    // nil means all
	replicas replicas
	script   string // of wrk; "" means post.lua
	grpc     bool   // the load calls it by gRPC
	cut      bool   // its two proxies have a cutter between them
	rsa      bool   // certificates have keys of RSA, not of ECDSA
	cores    int    // processors of each sidecar, of the replica and of the load; 0 means all, for all
}

// replicas are what serves the requests of a row. The zero value is one replica that
// responds at once. With more, each proxy of the chain but the first exists once per replica.
type replicas struct {
	count   int      // 0 means 1
	unix    bool     // they listen on Unix sockets
	streams bool     // they are remora-lab streams, and have no args
	args    []string // of remora-lab replica, after --mode fast
	alike   bool     // they have one seed
	first   []string // more args of the first
}

// arguments are those of replica i. seed is that of the row.
func (r replicas) arguments(i int, seed uint64) []string {
	if !r.alike {
		seed += uint64(i)
	}
	args := append([]string{"--seed", strconv.FormatUint(seed+1, 10)}, r.args...)
	if i == 0 {
		args = append(args, r.first...)
	}
	return args
}

// hop is one proxy of a chain.
type hop struct {
	program             Program
	config              string   // template of its configuration; "" means that it gets two ports instead
	args                []string // the path of its configuration, or the ports, come after them
	SecureIn, SecureOut bool     // HTTPS from the load, or to the next hop: of HAProxy, nginx and Remora; of Envoy mutual TLS
	Mutual              bool     // both sides show certificates: of HAProxy and nginx
	GRPC                bool     // HTTP/2 on both sides; Remora's Sidecar says it itself
	Scraped             bool     // its metrics are scraped each second: of Envoy and Remora
	uncounted           bool     // it belongs to the other side, and its usage is not measured
	Sidecar             *sidecar // nil for other proxies

	Hedge time.Duration // of Envoy: a second request goes to another host after it; 0 means none
}

var (
	floor      = []hop{{program: Floor, args: []string{"consumer"}}, {program: Floor, args: []string{"provider"}}}
	relay      = hop{program: Relay}
	haproxy    = hop{program: HAProxy, config: "haproxy.cfg", args: []string{"-db", "-f"}}
	nginx      = hop{program: Nginx, config: "nginx.conf", args: []string{"-e", "stderr", "-c"}}
	envoy      = hop{program: Envoy, config: "envoy.yaml", args: envoyArgs}
	envoyHedge = envoyHedging(5 * time.Millisecond)

	debianHAProxy = haproxy.by(DebianHAProxy)
	debianNginx   = nginx.by(DebianNginx)

	envoyArgs = []string{"--concurrency", "1", "--use-dynamic-base-id", "--log-level", "error", "-c"}
)

// by returns the hop as another release of the program.
func (h hop) by(p Program) hop {
	h.program = p
	return h
}

func envoyHedging(after time.Duration) hop {
	h := envoy
	h.Hedge = after
	return h
}

// sidecar is how one of Remora's sidecars is configured.
type sidecar struct {
	In, Out  string   // protocols
	Loops    int      // 0 means one
	AllLoops bool     // as many loops as processors
	TLS      bool     // on the link
	Exposed  bool     // it listens on all addresses, without TLS
	Observed bool     // access log, scraped metrics and traces, see observer
	Service  []string // more lines of the service's configuration
	Aliases  int      // it knows its upstream by so many addresses; 0 means by its own one
}

func (s sidecar) hop() hop {
	return hop{program: Remora, config: "remora.yaml", args: []string{"run", "-c"}, Sidecar: &s}
}

// mesh is a consumer's and a provider's sidecar. change, if not nil, changes both.
func mesh(change func(consumer, provider *sidecar)) []hop {
	consumer, provider := sidecar{In: "http", Out: "link"}, sidecar{In: "link", Out: "http"}
	if change != nil {
		change(&consumer, &provider)
	}
	return []hop{consumer.hop(), provider.hop()}
}

// Rows are all known rows, in the order of the report. Peers are the newest releases, unless the name
// says another.
func Rows() []Row {
	return []Row{
		{Name: "direct"},
		{Name: "floor-2", chain: floor, jobs: []Job{Busy, Low}},
		{Name: "relay-1", chain: []hop{relay}, jobs: []Job{Busy, Low, Fresh}},
		{Name: "relay-2", chain: []hop{relay, relay}, jobs: []Job{Busy, Low, Fresh}},
		{Name: "nginx-1", chain: []hop{nginx}, rest: true},
		{Name: "nginx-2", chain: []hop{nginx, nginx}},
		{Name: "nginx-1-debian", chain: []hop{debianNginx}, rest: true},
		{Name: "nginx-2-debian", chain: []hop{debianNginx, debianNginx}},
		{Name: "haproxy-1", chain: []hop{haproxy}, rest: true},
		{Name: "haproxy-2", chain: []hop{haproxy, haproxy}},
		{Name: "haproxy-1-debian", chain: []hop{debianHAProxy}, rest: true},
		{Name: "haproxy-2-debian", chain: []hop{debianHAProxy, debianHAProxy}},
		{Name: "envoy-1", chain: []hop{envoy}, rest: true},
		{Name: "envoy-2", chain: []hop{envoy, envoy}},
		{Name: "remora-1", chain: []hop{sidecar{In: "http", Out: "http"}.hop()}, rest: true},
		{Name: "remora-2", chain: mesh(nil)},
		{Name: "remora-2-tls", chain: mesh(func(c, p *sidecar) { c.TLS, p.TLS = true, true })},
		{Name: "remora-2-observed", chain: mesh(func(c, p *sidecar) { c.Observed, p.Observed = true, true })},
		{Name: "remora-2-nogc", chain: mesh(nil), env: []string{"GOGC=off"}},
		{Name: "remora-1-gnet", chain: []hop{sidecar{In: "http", Out: "http"}.hop()}, env: onGnet, rest: true},
		{Name: "remora-2-gnet", chain: mesh(nil), env: onGnet},
	}
}

// onGnet selects the engine that is not the default.
var onGnet = []string{"REMORA_ENGINE=gnet"}

// plainRows are Rows without variants of Remora.
func plainRows() []Row {
	return slices.DeleteFunc(Rows(), func(r Row) bool { return r.sidecars() && strings.Count(r.Name, "-") > 1 })
}

// DubboRows are HTTP in and Dubbo out, through four sidecars to three providers. Requests take
// no time, or 50 ms: n connections then can't get more than n / 50 ms responses a second.
func DubboRows() []Row {
	chain := mesh(func(_, provider *sidecar) {
		provider.Out, provider.Service = "dubbo", []string{"serialization: fastjson", "max_concurrency: 200"}
	})
	fast := []string{"--protocol", "dubbo"}
	slow := []string{"--protocol", "dubbo", "--mode", "stall", "--workers", "200"}
	return []Row{
		{Name: "dubbo", chain: chain, script: "form.lua", replicas: replicas{count: 3, args: fast}},
		{Name: "dubbo-50ms", chain: chain, script: "form.lua", replicas: replicas{count: 3, args: slow}},
	}
}

// HTTPSRows are one proxy that is called by HTTPS, or that calls a server by it: HAProxy in front of the replica.
func HTTPSRows() []Row {
	secure := func(h hop, in, out bool) hop {
		h.SecureIn, h.SecureOut = in, out
		return h
	}
	server := secure(haproxy, true, false)
	server.uncounted = true
	remora := sidecar{In: "http", Out: "http"}.hop()
	return []Row{
		{Name: "haproxy-https-in", chain: []hop{secure(haproxy, true, false)}, script: "post.lua"},
		{Name: "remora-https-in", chain: []hop{secure(remora, true, false)}, script: "post.lua"},
		{Name: "haproxy-https-out", chain: []hop{secure(haproxy, false, true), server}},
		{Name: "remora-https-out", chain: []hop{secure(remora, false, true), server}},
	}
}

// scheme returns the scheme of the URL of the row.
func (r Row) scheme() string {
	if len(r.chain) > 0 && r.chain[0].SecureIn {
		return "https://"
	}
	return "http://"
}

// sidecars reports whether the row is one of Remora's.
func (r Row) sidecars() bool {
	return slices.ContainsFunc(r.chain, func(h hop) bool { return h.Sidecar != nil })
}

// programs are those without which the row can't be measured.
func (r Row) programs() (programs []Program) {
	for _, h := range r.chain {
		programs = append(programs, h.program)
	}
	if r.script != "" {
		programs = append(programs, Wrk)
	}
	if r.grpc {
		programs = append(programs, H2load)
	}
	if r.cores > 0 {
		programs = append(programs, Taskset)
	}
	return programs
}

// Names returns the names of rows.
func Names(rows []Row) (names []string) {
	for _, r := range rows {
		names = append(names, r.Name)
	}
	return names
}

// Choose returns the rows of all with these names, in the order of all. No names means all.
func Choose(all []Row, names []string) ([]Row, error) {
	if len(names) == 0 {
		return all, nil
	}
	known := Names(all)
	for _, n := range names {
		if !slices.Contains(known, n) {
			return nil, fmt.Errorf("bench: unknown row %q: want some of %s", n, strings.Join(known, " "))
		}
	}
	return slices.DeleteFunc(all, func(r Row) bool { return !slices.Contains(names, r.Name) }), nil
}
