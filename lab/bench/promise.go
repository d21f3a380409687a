package bench

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Verdict says whether a promise holds.
type Verdict struct {
	What     string
	Measured float64   // a median; NaN if something that it compares was not measured
	Values   []float64 // of the rounds
	Limit    float64   // NaN if it is a measured one that is missing
	LimitIs  string    // where the limit was measured; "" means that it is fixed
	AtLeast  bool      // the limit is a minimum, not a maximum
	Rounds   int       // that have all values
	Restless bool      // processors stood still for too long
}

// Known reports whether all was measured that the verdict needs.
func (v Verdict) Known() bool { return !math.IsNaN(v.Measured) && !math.IsNaN(v.Limit) }

// Holds reports whether the promise is known to hold.
func (v Verdict) Holds() bool {
	if v.AtLeast {
		return v.Measured >= v.Limit
	}
	return v.Measured <= v.Limit // not if one is NaN
}

var (
	at1     = Closed(1, 0).Name
	at64    = Closed(64, 0).Name
	at512   = Closed(512, 0).Name
	atSlow  = Open(2000, 0).Name
	peerOf2 = []string{"relay-2", "haproxy-2", "nginx-2", "envoy-2"}
)

// Verdicts judges the promises of the bench of costs.
func (s Samples) Verdicts() []Verdict {
	const (
		cpu   = "CPU per request of two hops"
		added = "median latency added by two hops"
		tail  = "p99.9 of two hops"
	)
	var verdicts []Verdict
	for i, limit := range []float64{0.8, 0.68, 0.68, 0.21} {
		verdicts = append(verdicts, s.compare(cpu, "remora-2", peerOf2[i], at64, CPU, limit))
	}
	for _, peer := range peerOf2 {
		verdicts = append(verdicts, s.better(cpu, "remora-2", peer, at512, at64, CPU))
	}
	throughput := s.compare("throughput of two hops", "remora-2", "haproxy-2", at64, Rate, 1.25)
	throughput.AtLeast = true
	return append(verdicts,
		s.compare("CPU per request of one hop", "remora-1", "haproxy-1", at64, CPU, 0.85),
		throughput,
		s.compare(cpu, "remora-2", "haproxy-2", atSlow, CPU, 1),
		s.compare(cpu+" (a stretch)", "remora-2", "nginx-2", atSlow, CPU, 1),
		s.compare(added, "remora-2", "haproxy-2", atSlow, AddedP50, 1),
		s.compare(added+" (a stretch)", "remora-2", "nginx-2", atSlow, AddedP50, 1),
		s.best(tail, "remora-2", peerOf2[1:], atSlow, P999),
		s.steady(tail, "remora-2", "remora-2-nogc", atSlow, P999),
		s.steady(tail, "remora-2", "remora-2-nogc", at64, P999),
		s.value("resident memory at rest, MiB (10 MB)", "remora-1", AtRest, RestRSS, 10/megabytes),
		s.value("memory of an idle connection, KiB", "remora-1", AtRest, Connection, 1),
		s.value("CPU at rest, ms per second", "remora-1", AtRest, RestCPU, 0.3),
	)
}

// compare limits the ratio of two rows.
func (s Samples) compare(what, row, base, load string, f Figure, limit float64) Verdict {
	ratios := s.Ratios(row, base, load, f)
	return Verdict{
		What: fmt.Sprintf("%s, %s: %s / %s", what, load, row, base), Measured: median(ratios), Values: ratios,
		Limit: limit, Rounds: len(ratios), Restless: s.restless(load, f, row, base),
	}
}

// better wants the ratio of two rows to be no greater under one load than under another.
func (s Samples) better(what, row, base, load, than string, f Figure) Verdict {
	other := s.compare(what, row, base, than, f, 0)
	v := s.compare(what, row, base, load, f, other.Measured)
	v.LimitIs = "that of the " + than
	v.Rounds = min(v.Rounds, other.Rounds)
	v.Restless = v.Restless || other.Restless
	return v
}

// steady wants a figure as good as another row's, up to that row's worst round over its median.
func (s Samples) steady(what, row, base, load string, f Figure) Verdict {
	v := s.best(what, row, []string{base}, load, f)
	if v.Known() {
		values := s.Values(base, load, f)
		v.Limit, v.LimitIs = slices.Max(values)/median(values), "the worst round of "+base
	}
	return v
}

// best wants a figure as good as the best peer's.
func (s Samples) best(what, row string, peers []string, load string, f Figure) Verdict {
	against := peers[0]
	if len(peers) > 1 {
		against = "the best of " + strings.Join(peers, ", ")
	}
	v := Verdict{What: fmt.Sprintf("%s, %s: %s / %s", what, load, row, against), Limit: math.NaN()}
	mine, base := s.Values(row, load, f), math.Inf(1)
	for _, peer := range peers {
		values := s.Values(peer, load, f)
		if m := median(values); m < base {
			base, v.Limit = m, 1
			v.Rounds = min(len(mine), len(values))
			v.Restless = s.restless(load, f, row, peer)
		}
	}
	v.Measured, v.Values = median(mine)/base, parts(mine, base)
	return v
}

// value limits a figure.
func (s Samples) value(what, row, load string, f Figure, limit float64) Verdict {
	values := s.Values(row, load, f)
	return Verdict{
		What: what + ": " + row, Measured: median(values), Values: values, Limit: limit,
		Rounds: len(values), Restless: s.restless(load, f, row),
	}
}

// parts returns values as parts of a whole.
func parts(values []float64, whole float64) (parts []float64) {
	for _, v := range values {
		parts = append(parts, v/whole)
	}
	return parts
}
