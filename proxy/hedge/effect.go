package hedge

import (
	"fmt"
	"strings"
	"time"

	"github.com/remora-proxy/remora/proxy/hedge/histogram"
)

// Effect is what hedging does to the requests of a route, or of several: in mode On what it
// brings, in mode Shadow what it would bring with the delay in force to those that may be hedged.
type Effect struct {
	Mode             Mode
	Without, With    histogram.Distribution // of the same requests; censored without are those that it saves
	Hedges, Requests uint64                 // of all requests in that time, or since the start
	OneIn            int                    // in mode On: of so many decisions one may hedge, on the loop where the fewest may
}

// Add adds o to e.
func (e *Effect) Add(o *Effect) {
	e.Without.Add(&o.Without)
	e.With.Add(&o.With)
	e.Hedges += o.Hedges
	e.Requests += o.Requests
	e.OneIn = max(e.OneIn, o.OneIn)
}

// TestConstants shows what happens at twice and at half of each.
var (
	// leastGain is the share of a quantile that is worth the hedges.
	leastGain = 0.1

	// leastBeyond is how many requests must be slower than a quantile for it to be known.
	leastBeyond int64 = 4
)

// Verdict says in one line what hedging brings, or would bring.
func (e *Effect) Verdict() string {
	takes, brings, load := "takes", "brings", "extra load"
	if e.Mode != On {
		takes, brings, load = "would take", "would bring", "extra load saved"
	}
	var gains []string
	known := false
	for _, of := range []struct {
		name     string
		quantile float64
		oneIn    int64
	}{{"P99", .99, 100}, {"P99.9", .999, 1000}} {
		known = e.Without.Samples() >= leastBeyond*of.oneIn
		if gain := e.gain(of.quantile); known && gain != "" {
			gains = append(gains, gain+" off "+of.name)
		}
	}
	share := 100 * float64(e.Hedges) / float64(max(1, e.Requests))
	switch {
	case gains != nil:
		return fmt.Sprintf("hedging %s %s at %.1f%% extra load", takes, strings.Join(gains, " and "), share)
	case !known:
		return "too few requests that may be hedged to say yet"
	}
	return fmt.Sprintf("hedging %s nothing here: %.1f%% %s", brings, share, load)
}

// gain returns by how much a quantile falls, or "" if it is not worth it.
func (e *Effect) gain(q float64) string {
	was, known := e.Without.Quantile(q)
	is, better := e.With.Quantile(q)
	switch gain := was - is; {
	case !better:
		return ""
	case !known && e.Mode == On: // the slow attempts were withdrawn
		return "an unknown time"
	case !known:
		return "the timeouts"
	case float64(gain) < leastGain*float64(was):
		return ""
	case gain >= 10*time.Millisecond:
		return fmt.Sprintf("%d ms", gain.Round(time.Millisecond).Milliseconds())
	default:
		return fmt.Sprintf("%.2g ms", float64(gain)/float64(time.Millisecond))
	}
}
