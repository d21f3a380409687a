package bench

import (
	"fmt"
	"slices"
	"strings"
)

// Verdict says whether a promise holds.
type Verdict struct {
	What     string  `json:"what"`
	Measured float64 `json:"measured"` // a median
	Limit    float64 `json:"limit"`
	LimitIs  string  `json:"limit_is,omitempty"` // where the limit was measured; "" means that it is fixed
	AtLeast  bool    `json:"at_least"`           // the limit is a minimum, not a maximum
	Known    bool    `json:"known"`              // all that it compares was measured
	Rounds   int     `json:"rounds"`             // that have a value
	Restless bool    `json:"restless"`           // processors stood still for too long
}

// Holds reports whether the promise is known to hold.
func (v Verdict) Holds() bool {
	if v.AtLeast {
		return v.Known && v.Measured >= v.Limit
	}
	return v.Known && v.Measured <= v.Limit
}

// The loads and peers of the promises.
var (
	at64    = Closed(64, 0).Name
	at512   = Closed(512, 0).Name
	atSlow  = Open(2000, 0).Name
	peerOf2 = []string{"relay-2", "haproxy-2", "nginx-2", "envoy-2"}
)

// Verdicts judges the promises of the bench of costs.
func (s Samples) Verdicts() []Verdict {
	verdicts := []Verdict{
		s.compare("CPU per request of two hops", "remora-2", "relay-2", at64, CPU, 0.9),
		s.compare("CPU per request of two hops", "remora-2", "haproxy-2", at64, CPU, 0.68),
		s.compare("CPU per request of two hops", "remora-2", "nginx-2", at64, CPU, 0.68),
		s.compare("CPU per request of two hops", "remora-2", "envoy-2", at64, CPU, 0.21),
	}
	for _, peer := range peerOf2 {
		verdicts = append(verdicts, s.better("CPU per request of two hops", "remora-2", peer, at512, at64, CPU))
	}
	throughput := s.compare("throughput of two hops", "remora-2", "haproxy-2", at64, Rate, 1.25)
	throughput.AtLeast = true
	return append(verdicts,
		s.compare("CPU per request of one hop", "remora-1", "haproxy-1", at64, CPU, 1),
		throughput,
		s.compare("CPU per request of two hops", "remora-2", "haproxy-2", atSlow, CPU, 1),
		s.compare("CPU per request of two hops (a stretch)", "remora-2", "nginx-2", atSlow, CPU, 1),
		s.compare("median latency added by two hops", "remora-2", "haproxy-2", atSlow, AddedP50, 1),
		s.compare("median latency added by two hops (a stretch)", "remora-2", "nginx-2", atSlow, AddedP50, 1),
		s.best("p99.9 of two hops", "remora-2", peerOf2[1:], atSlow, P999),
		s.best("p99.9 of two hops", "remora-2", []string{"remora-2-nogc"}, atSlow, P999),
		s.best("p99.9 of two hops", "remora-2", []string{"remora-2-nogc"}, at64, P999),
		s.value("resident memory at rest beyond that of the program which has done nothing, MiB (10 MB)", "remora-1", OwnRSS, 10e6/(1<<20)),
		s.value("memory of an idle connection, KiB", "remora-1", Connection, 4),
		s.value("CPU at rest, ms per second", "remora-1", RestCPU, 2),
	)
}

// compare limits the ratio of two rows.
func (s Samples) compare(what, row, base, load string, f Figure, limit float64) Verdict {
	v := Verdict{What: fmt.Sprintf("%s, %s: %s / %s", what, load, row, base), Limit: limit}
	ratios := s.Ratios(row, base, load, f)
	v.Rounds = len(ratios)
	v.Measured, v.Known = median(ratios)
	v.Restless = s.restless(load, f, row, base)
	return v
}

// better wants the ratio of two rows to be no greater under one load than under another.
func (s Samples) better(what, row, base, load, than string, f Figure) Verdict {
	ratios := s.Ratios(row, base, than, f)
	limit, known := median(ratios)
	v := s.compare(what, row, base, load, f, limit)
	v.Rounds = min(v.Rounds, len(ratios))
	v.LimitIs = "that of the " + than
	v.Known = v.Known && known
	v.Restless = v.Restless || s.restless(than, f, row, base)
	return v
}

// best wants a figure to be as good as that of the best peer, within noise: the limit is how
// far the peer's worst round is above its median.
func (s Samples) best(what, row string, peers []string, load string, f Figure) Verdict {
	against := peers[0]
	if len(peers) > 1 {
		against = "the best of " + strings.Join(peers, ", ")
	}
	v := Verdict{What: fmt.Sprintf("%s, %s: %s / %s", what, load, row, against)}
	mine := s.Values(row, load, f)
	own, ok := median(mine)
	var base float64
	for _, peer := range peers {
		values := s.Values(peer, load, f)
		if m, known := median(values); known && (!v.Known || m < base) {
			base, v.Limit, v.Known = m, slices.Max(values)/m, true
			v.LimitIs, v.Rounds = "the worst round of "+peer, min(len(mine), len(values))
			v.Restless = s.restless(load, f, row, peer)
		}
	}
	v.Known = v.Known && ok
	if v.Known {
		v.Measured = own / base
	}
	return v
}

// value limits a figure at rest.
func (s Samples) value(what, row string, f Figure, limit float64) Verdict {
	v := Verdict{What: what + ": " + row, Limit: limit}
	values := s.Values(row, AtRest, f)
	v.Rounds = len(values)
	v.Measured, v.Known = median(values)
	return v
}
