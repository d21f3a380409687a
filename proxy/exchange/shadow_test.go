package exchange_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// trouble is what disturbs the applications of an experiment.
type trouble struct {
	name string
	// delay is a fixed one whose hedges the budget pays for. Beyond that it is
	// chance which requests get a token, and the P99 hangs on it.
	delay time.Duration
	do    func(m *proxytest.Mesh, rnd *rand.Rand, length time.Duration)
}

var troubles = []trouble{
	{"random stalls", 5 * time.Millisecond, func(m *proxytest.Mesh, rnd *rand.Rand, length time.Duration) {
		for _, a := range m.Apps {
			for at := time.Duration(0); at < length; {
				at += time.Duration(rnd.ExpFloat64() * float64(1500*time.Millisecond))
				m.Freeze(at, 40*time.Millisecond, a)
			}
		}
	}},
	{"one slow replica", 10 * time.Millisecond, func(m *proxytest.Mesh, rnd *rand.Rand, _ time.Duration) {
		m.Apps[0].Delay = func() time.Duration {
			return 12 * time.Duration(math.Exp(rnd.NormFloat64()/2)*float64(time.Millisecond))
		}
	}},
	{"correlated stalls", 5 * time.Millisecond, func(m *proxytest.Mesh, _ *rand.Rand, length time.Duration) {
		for at := time.Second; at < length; at += 2 * time.Second {
			m.Freeze(at, 50*time.Millisecond, m.Apps...)
		}
	}},
}

// suffer runs a stream of requests through a mesh in trouble. It returns their
// latencies in order, and what the consumer reports at the end.
func suffer(t *testing.T, tr *trouble, hedging string) (took []time.Duration, route *stats.RouteReport) {
	const length = 8 * time.Second
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Service: ", idempotent: true, timeout: 2s, hedge: {" + hedging + "}"})
	m.SetLognormalDelays(3)
	tr.do(m, rand.New(rand.NewPCG(5, 6)), length)
	calls := m.SendAtRate(4, 1000, length)
	m.FinishAfter(length, calls)
	m.OK(calls...)
	m.Settled()
	for _, c := range calls {
		took = append(took, c.Took)
	}
	slices.Sort(took)
	m.Consumer.Loop.Do(func() { route = &m.Consumer.Proc.Workers()[0].Report().Services[0].Routes[0] })
	return took, route
}

// What shadow mode promises is what hedging then delivers, to within 25% of P99 and
// one percent of load, and a stall of all applications is not sold as a gain.
func TestShadowForecastsWhatHedgingDelivers(t *testing.T) {
	for _, tr := range troubles {
		t.Run(tr.name, func(t *testing.T) {
			off, shadow := suffer(t, &tr, "mode: shadow")
			if shadow.Counts.Hedges != 0 {
				t.Fatalf("shadow mode sent %d hedges", shadow.Counts.Hedges)
			}
			for _, f := range shadow.Forecasts {
				hedging := "mode: on"
				switch {
				case f.Delay == tr.delay:
					hedging += ", delay: " + tr.delay.String()
				case !f.Current:
					continue
				}
				on, route := suffer(t, &tr, hedging)
				forecast, _ := f.Latency.Quantile(.99)
				was, is := quantile(off, .99), quantile(on, .99)
				t.Logf("delay %v: p99 %v without, %v forecast, %v delivered; load %.2f%% forecast, %.2f%% sent",
					f.Delay, was, forecast, is, 100*extra(f.Hedges, shadow), 100*extra(route.Counts.Hedges, route))
				if math.Abs(float64(forecast-is)) > .25*float64(is) {
					t.Errorf("delay %v: a p99 of %v was forecast, %v delivered", f.Delay, forecast, is)
				}
				if sent := extra(route.Counts.Hedges, route); math.Abs(extra(f.Hedges, shadow)-sent) > .01 {
					t.Errorf("delay %v: extra load of %v was forecast, %v sent", f.Delay, extra(f.Hedges, shadow), sent)
				}
			}
		})
	}
}

func extra(hedges uint64, r *stats.RouteReport) float64 {
	return float64(hedges) / float64(r.Counts.Primaries)
}

func quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[int(math.Ceil(q*float64(len(sorted))))-1]
}
