package fleet

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"time"
)

// Guard is the bound on the latency of sidecars that run the candidate, relative to the others. Judge also compares failures:
// a request that fails at once is fast, so that latency alone would miss it.
type Guard struct {
	Percentile float64 `json:"percentile"` // of latency, as in 99.9
	Ratio      float64 `json:"ratio"`      // to the percentile of the others
}

// guardText matches a guard: p99 <= 1.05x.
var guardText = regexp.MustCompile(`^p([0-9]{1,2}(?:\.[0-9]+)?) *<= *([0-9]+(?:\.[0-9]+)?)x$`)

// ParseGuard parses a guard.
func ParseGuard(text string) (*Guard, error) {
	m := guardText.FindStringSubmatch(text)
	if m == nil {
		return nil, fmt.Errorf("%q: expected a bound such as p99 <= 1.05x", text)
	}
	g := &Guard{}
	var err error
	if g.Percentile, err = strconv.ParseFloat(m[1], 64); err != nil {
		return nil, err
	}
	if g.Ratio, err = strconv.ParseFloat(m[2], 64); err != nil {
		return nil, err
	}
	if g.Percentile == 0 || g.Ratio == 0 {
		return nil, fmt.Errorf("%q: expected a percentile and a ratio above 0", text)
	}
	return g, nil
}

// String returns g as ParseGuard reads it.
func (g *Guard) String() string {
	return fmt.Sprintf("p%s <= %sx", strconv.FormatFloat(g.Percentile, 'f', -1, 64), strconv.FormatFloat(g.Ratio, 'f', -1, 64))
}

const (
	// leastBeyond is how many requests beyond the percentile a verdict needs on each side, 1000 requests for p99, and
	// how many failures a verdict on failures needs.
	leastBeyond = 10

	// deviations is how many standard deviations a difference must be from chance. A guard looks every few seconds, for
	// hours, so that two or three would stop roll-outs that do no harm.
	deviations = 4

	// maxCompared bounds the services that are compared, and maxName the bytes of their names. Whoever may write statuses
	// must not fill the memory of the sidecar that compares. Services past these bounds are not compared.
	maxCompared = 10_000
	maxName     = 256
)

// Comparison sums what each service did on the sidecars that run the candidate of a head, and on those that run its stable
// revision.
type Comparison struct {
	head     *Head
	services map[string]*sides
}

// sides are the two sides of one service.
type sides struct{ with, without side }

// side is what one service did on the sidecars with the candidate, or on the sidecars without it.
type side struct {
	sidecars         int
	requests, failed float64
	latencies
}

func (s *side) add(svc *Service) {
	s.sidecars++
	s.requests += float64(min(svc.Requests, maxCount))
	s.failed += float64(min(svc.Failed, svc.Requests, maxCount))
	s.latencies.add(svc.Latency)
}

// Compare returns the Comparison for the roll-out of a head, to which no status was added yet.
func Compare(h *Head) *Comparison { return &Comparison{head: h, services: map[string]*sides{}} }

// Add adds a status, which stays the caller's. A status of another time, or with another revision, changes nothing.
func (c *Comparison) Add(st *Status) {
	if !st.Change.Equal(c.head.Change.At) || st.Revision != c.head.Candidate && st.Revision != c.head.Stable {
		return
	}
	for name, svc := range st.Services {
		of := c.of(name)
		switch {
		case of == nil:
		case st.Revision == c.head.Candidate:
			of.with.add(&svc)
		default:
			of.without.add(&svc)
		}
	}
}

// of returns the sides of a service; nil means that it is not compared.
func (c *Comparison) of(name string) *sides {
	of := c.services[name]
	if of == nil && len(c.services) < maxCompared && len(name) <= maxName {
		of = new(sides)
		c.services[name] = of
	}
	return of
}

// Judge returns why the roll-out must be taken back, or "".
func (g *Guard) Judge(c *Comparison) (why string) {
	for _, name := range slices.Sorted(maps.Keys(c.services)) {
		on, others := &c.services[name].with, &c.services[name].without
		switch {
		case on.sidecars == 0 || others.sidecars == 0:
		case g.exceeded(on, others):
			return fmt.Sprintf("service %s: p%s is %s on %d sidecars with revision %d, and %s on %d without; the guard is %s", name,
				strconv.FormatFloat(g.Percentile, 'f', -1, 64), g.of(on), on.sidecars, c.head.Candidate, g.of(others), others.sidecars, g)
		case failsMore(on, others):
			return fmt.Sprintf("service %s: %.1f%% of requests fail on %d sidecars with revision %d, and %.1f%% on %d without", name,
				100*on.failed/on.requests, on.sidecars, c.head.Candidate, 100*others.failed/others.requests, others.sidecars)
		}
	}
	return ""
}

// failsMore reports whether a larger share of requests fails, by more than chance.
func failsMore(with, without *side) bool {
	if with.failed < leastBeyond || without.requests == 0 {
		return false
	}
	common := (with.failed + without.failed) / (with.requests + without.requests)
	deviation := math.Sqrt(common * (1 - common) * (1/with.requests + 1/without.requests))
	return with.failed/with.requests > without.failed/without.requests+deviations*deviation
}

// of returns the percentile as text.
func (g *Guard) of(s *side) string {
	if d, ok := s.quantile(g.Percentile / 100); ok {
		return d.Round(10 * time.Microsecond).String()
	}
	return "a timeout"
}

// exceeded reports whether the percentile of a service exceeds its bound by more than chance. The requests beyond the
// bound are counted. If the percentile is at the bound, the share of these requests is that beyond the percentile, and
// varies as the binomial distribution does. The bound varies too, with the requests of the others.
func (g *Guard) exceeded(with, without *side) bool {
	beyond := 1 - g.Percentile/100
	if with.all*beyond < leastBeyond || without.all*beyond < leastBeyond {
		return false
	}
	others, known := without.quantile(g.Percentile / 100)
	if !known {
		return false // the others are as slow as can be
	}
	deviation := math.Sqrt(beyond * (1 - beyond) * (1/with.all + 1/without.all))
	return with.later(time.Duration(float64(others)*g.Ratio)) > beyond+deviations*deviation
}
