package bench

import (
	"fmt"
	"slices"
	"strings"
)

// A Row is one way from the load to the replica.
type Row struct {
	Name  string
	chain []hop    // of proxies, the load's side first
	env   []string // of the proxies, beside that of this process
	rest  bool     // it is measured at rest too
	size  size     // of its sidecars
}

// A hop is a proxy of a chain.
type hop struct {
	program Program
	args    func(place) ([]string, error) // writes its configuration, and says how it is started
	sidecar bool                          // it has an admin API
}

var (
	relay   = hop{program: Relay, args: relayArgs}
	haproxy = hop{program: HAProxy, args: configured("haproxy.cfg", "-db", "-f")}
	nginx   = hop{program: Nginx, args: configured("nginx.conf", "-e", "stderr", "-c")}
	envoy   = hop{program: Envoy, args: configured("envoy.yaml", "--concurrency", "1", "--use-dynamic-base-id",
		"--log-level", "error", "-c")}
)

// Manners of a sidecar, beside the protocols that it speaks.
type manner struct {
	tls      bool // on the link
	observed bool // access log, scraped metrics and traces, see observer
}

func remora(in, out string, m manner) hop {
	return hop{program: Remora, sidecar: true, args: func(p place) ([]string, error) {
		return p.sidecarArgs(in, out, m)
	}}
}

// mesh is a consumer's and a provider's sidecar.
func mesh(m manner) []hop { return []hop{remora("http", "link", m), remora("link", "http", m)} }

// Rows are all ways that are known, in the order of the report.
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
		{Name: "remora-1", chain: []hop{remora("http", "http", manner{})}, rest: true},
		{Name: "remora-2", chain: mesh(manner{})},
		{Name: "remora-2-tls", chain: mesh(manner{tls: true})},
		{Name: "remora-2-observed", chain: mesh(manner{observed: true})},
		{Name: "remora-2-nogc", chain: mesh(manner{}), env: []string{"GOGC=off"}},
	}
}

// sidecars tells whether the row is one of Remora's.
func (r Row) sidecars() bool {
	return slices.ContainsFunc(r.chain, func(h hop) bool { return h.sidecar })
}

// missing are the programs of the row that were not found.
func (r Row) missing(t Tools) (programs []Program) {
	for _, h := range r.chain {
		if t[h.program] == "" && !slices.Contains(programs, h.program) {
			programs = append(programs, h.program)
		}
	}
	return programs
}

// Choose returns the rows with these names, in the order of Rows; all if there are
// none.
func Choose(names []string) ([]Row, error) {
	return choose("row", Rows(), func(r Row) string { return r.Name }, names)
}

// choose keeps what is named, in the order of all; with no names, all.
func choose[T any](kind string, all []T, name func(T) string, names []string) ([]T, error) {
	if len(names) == 0 {
		return all, nil
	}
	var known []string
	for _, v := range all {
		known = append(known, name(v))
	}
	for _, n := range names {
		if !slices.Contains(known, n) {
			return nil, fmt.Errorf("bench: unknown %s %q: want some of %s", kind, n, strings.Join(known, " "))
		}
	}
	return slices.DeleteFunc(all, func(v T) bool { return !slices.Contains(names, name(v)) }), nil
}
