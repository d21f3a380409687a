package bench

import (
	"fmt"
	"slices"
	"strings"
)

// Row is one way from the load to the replicas.
type Row struct {
	Name     string
	chain    []hop    // of proxies, from the load to the replicas
	env      []string // of the proxies, added to that of this process
	rest     bool     // the row is also measured at rest
	replicas replicas
	script   string // of wrk; "" means post.lua
	aliases  int    // addresses by which the first proxy knows the second one; 0 means 1
}

// replicas are what serves the requests of a row. The zero value is one replica that
// responds at once. With more, each proxy of the chain but the first exists once per replica.
type replicas struct {
	count int      // 0 means 1
	args  []string // of remora-lab replica; nil means a fast replica
}

// hop is one proxy of a chain.
type hop struct {
	program Program
	args    func(place) ([]string, error) // writes the configuration, and returns the arguments
	sidecar bool                          // it has an admin API
}

var (
	relay   = hop{program: Relay, args: relayArgs}
	haproxy = hop{program: HAProxy, args: configured("haproxy.cfg", "-db", "-f")}
	nginx   = hop{program: Nginx, args: configured("nginx.conf", "-e", "stderr", "-c")}
	envoy   = hop{program: Envoy, args: configured("envoy.yaml", envoyArgs...)}

	// envoyHedge sends a second request to another host after 5 ms.
	envoyHedge = hop{program: Envoy, args: func(p place) ([]string, error) {
		p.Hedge = true
		return p.configure("envoy.yaml", p, envoyArgs...)
	}}
	envoyArgs = []string{"--concurrency", "1", "--use-dynamic-base-id", "--log-level", "error", "-c"}
)

// sidecar is how one of Remora's sidecars is configured.
type sidecar struct {
	in, out  string   // protocols
	allLoops bool     // as many loops as processors, not one
	tls      bool     // on the link
	insecure bool     // the link has no TLS on any address
	observed bool     // access log, scraped metrics and traces, see observer
	service  []string // more lines of the service's configuration
}

func (s sidecar) hop() hop {
	return hop{program: Remora, sidecar: true, args: func(p place) ([]string, error) { return p.sidecarArgs(s) }}
}

// mesh is a consumer's and a provider's sidecar. change, if not nil, changes both.
func mesh(change func(consumer, provider *sidecar)) []hop {
	consumer, provider := sidecar{in: "http", out: "link"}, sidecar{in: "link", out: "http"}
	if change != nil {
		change(&consumer, &provider)
	}
	return []hop{consumer.hop(), provider.hop()}
}

// Rows are all known rows, in the order of the report.
func Rows() []Row {
	return []Row{
		{Name: "direct"},
		{Name: "relay-1", chain: []hop{relay}},
		{Name: "relay-2", chain: []hop{relay, relay}},
		{Name: "nginx-1", chain: []hop{nginx}, rest: true},
		{Name: "nginx-2", chain: []hop{nginx, nginx}},
		{Name: "haproxy-1", chain: []hop{haproxy}, rest: true},
		{Name: "haproxy-2", chain: []hop{haproxy, haproxy}},
		{Name: "envoy-1", chain: []hop{envoy}, rest: true},
		{Name: "envoy-2", chain: []hop{envoy, envoy}},
		{Name: "remora-1", chain: []hop{sidecar{in: "http", out: "http"}.hop()}, rest: true},
		{Name: "remora-2", chain: mesh(nil)},
		{Name: "remora-2-tls", chain: mesh(func(c, p *sidecar) { c.tls, p.tls = true, true })},
		{Name: "remora-2-observed", chain: mesh(func(c, p *sidecar) { c.observed, p.observed = true, true })},
		{Name: "remora-2-nogc", chain: mesh(nil), env: []string{"GOGC=off"}},
	}
}

// DubboRows are HTTP in and Dubbo out, through four sidecars to three providers. Requests take
// no time at dubbo, and 50 ms at dubbo-50ms: there n connections can't get more than n / 50 ms
// responses a second.
func DubboRows() []Row {
	chain := mesh(func(_, provider *sidecar) {
		provider.out, provider.service = "dubbo", []string{"serialization: fastjson", "max_concurrency: 200"}
	})
	return []Row{
		{Name: "dubbo", chain: chain, script: "form.lua", replicas: replicas{3, []string{"--protocol", "dubbo"}}},
		{Name: "dubbo-50ms", chain: chain, script: "form.lua", replicas: replicas{3, []string{"--protocol", "dubbo", "--mode", "stall", "--workers", "200"}}},
	}
}

// sidecars reports whether the row is one of Remora's.
func (r Row) sidecars() bool {
	return slices.ContainsFunc(r.chain, func(h hop) bool { return h.sidecar })
}

// missing returns the programs of the row that were not found.
func (r Row) missing(t Tools) (programs []Program) {
	for _, h := range r.chain {
		if t[h.program] == "" && !slices.Contains(programs, h.program) {
			programs = append(programs, h.program)
		}
	}
	if r.script != "" && t[Wrk] == "" {
		programs = append(programs, Wrk)
	}
	return programs
}

// Choose returns the rows of all with these names, in the order of all. No names means all.
func Choose(all []Row, names []string) ([]Row, error) {
	if len(names) == 0 {
		return all, nil
	}
	var known []string
	for _, r := range all {
		known = append(known, r.Name)
	}
	for _, n := range names {
		if !slices.Contains(known, n) {
			return nil, fmt.Errorf("bench: unknown row %q: want some of %s", n, strings.Join(known, " "))
		}
	}
	return slices.DeleteFunc(all, func(r Row) bool { return !slices.Contains(names, r.Name) }), nil
}
