package exchange_test

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/hedge"
	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// disturbance is a way to slow the applications of an experiment.
type disturbance struct {
	name string
	// delay is the delay of hedges. It is long enough for the budget: otherwise the P99
	// would depend on which requests get a token by chance.
	delay   time.Duration
	do      func(m *proxytest.Mesh, rnd *rand.Rand, length time.Duration)
	options proxytest.MeshOptions

	timeout  time.Duration // of requests, which may then fail; 0 means 2 s
	large    float64       // share of the requests that have 10 kB
	length   time.Duration // of the experiment; 0 means 8 s
	quantile float64       // that is compared; 0 means P99
}

// stallAtRandom has each application stall, at random times.
func stallAtRandom(m *proxytest.Mesh, rnd *rand.Rand, length, every, stall time.Duration) {
	for _, a := range m.Apps {
		for at := time.Duration(0); at < length; at += stall {
			at += time.Duration(rnd.ExpFloat64() * float64(every))
			proxytest.Apps{a}.Freeze(at, stall)
		}
	}
}

// delayHardly has a tenth of the requests take little longer than 5 ms. A hedge saves nothing.
func delayHardly(m *proxytest.Mesh, rnd *rand.Rand, _ time.Duration) {
	for _, a := range m.Apps {
		a.Delay = func() time.Duration {
			if rnd.IntN(10) == 0 {
				return 5800 * time.Microsecond
			}
			return time.Millisecond
		}
	}
}

var disturbances = []disturbance{
	{name: "random stalls", delay: 5 * time.Millisecond, do: func(m *proxytest.Mesh, rnd *rand.Rand, length time.Duration) {
		stallAtRandom(m, rnd, length, 1500*time.Millisecond, 40*time.Millisecond)
	}},
	{name: "one slow replica", delay: 10 * time.Millisecond, do: func(m *proxytest.Mesh, rnd *rand.Rand, _ time.Duration) {
		m.Apps[0].Delay = func() time.Duration {
			return 12 * time.Duration(math.Exp(rnd.NormFloat64()/2)*float64(time.Millisecond))
		}
	}},
	{name: "correlated stalls", delay: 5 * time.Millisecond, do: func(m *proxytest.Mesh, _ *rand.Rand, length time.Duration) {
		for at := time.Second; at < length; at += 2 * time.Second {
			m.Apps.Freeze(at, 50*time.Millisecond)
		}
	}},
	{name: "large requests", delay: 20 * time.Millisecond, large: .1, do: func(m *proxytest.Mesh, rnd *rand.Rand, length time.Duration) {
		for _, a := range m.Apps {
			takes := time.Duration(0)
			a.OnRequest = func(req *protocol.Request) {
				takes = time.Duration(math.Exp(rnd.NormFloat64()/4) * float64(time.Millisecond))
				if len(req.Body) > 1000 {
					takes *= 20
				}
			}
			a.Delay = func() time.Duration { return takes }
		}
		stallAtRandom(m, rnd, length, 1500*time.Millisecond, 80*time.Millisecond)
	}},
	{name: "hardly late", delay: 5 * time.Millisecond, length: 20 * time.Second, options: proxytest.MeshOptions{OneHop: true}, do: delayHardly},
	{
		name: "stalls among hardly late requests", delay: 5 * time.Millisecond, length: 30 * time.Second, quantile: .999,
		do: func(m *proxytest.Mesh, rnd *rand.Rand, length time.Duration) {
			delayHardly(m, rnd, length)
			stallAtRandom(m, rnd, length, 2*time.Second, 200*time.Millisecond)
		},
	},
	{
		name: "stalls beyond the deadline", delay: 5 * time.Millisecond, timeout: 100 * time.Millisecond,
		do: func(m *proxytest.Mesh, rnd *rand.Rand, length time.Duration) {
			stallAtRandom(m, rnd, length, 1500*time.Millisecond, 250*time.Millisecond)
		},
	},
}

// measure sends requests at a fixed rate through a mesh with a disturbance. It returns
// their sorted latencies, and the consumer's report of the route.
func measure(t *testing.T, tr *disturbance, hedging string) (took []time.Duration, route *stats.RouteReport) {
	length := cmp.Or(tr.length, 8*time.Second)
	o := tr.options
	o.Service = fmt.Sprintf("idempotent: true, timeout: %v, hedge: {%s}", cmp.Or(tr.timeout, 2*time.Second), hedging)
	m := proxytest.NewMesh(t, o)
	m.Apps.SetLognormalDelays(3)
	tr.do(m, rand.New(rand.NewPCG(5, 6)), length)
	calls := m.SendAtRate(4, 1000, length)
	sizes := rand.New(rand.NewPCG(7, 8))
	for _, c := range calls {
		if sizes.Float64() < tr.large {
			*c = *m.Post(10_000)
		}
	}
	m.FinishAfter(length, calls)
	if tr.timeout == 0 {
		m.OK(calls...)
	}
	m.Settled()
	for _, c := range calls {
		took = append(took, c.Took)
	}
	slices.Sort(took)
	m.Consumer.Loop.Do(func() { route = &m.Consumer.Proc.Workers()[0].Report(stats.Forecasts).Services[0].Routes[0] })
	return took, route
}

// TestShadowForecast: hedging has the effect that shadow mode forecasts, within 15% of P99
// and one percent of load. No gain is forecast for a stall of all applications.
func TestShadowForecast(t *testing.T) {
	for _, tr := range disturbances {
		if testing.Short() && tr.length > 0 {
			continue
		}
		t.Run(tr.name, func(t *testing.T) {
			off, shadow := measure(t, &tr, "mode: shadow, sample: 1")
			if shadow.Counts.Hedges != 0 {
				t.Fatalf("shadow mode sent %d hedges", shadow.Counts.Hedges)
			}
			q := cmp.Or(tr.quantile, .99)
			for _, f := range shadow.Forecasts {
				hedging := "mode: on"
				switch {
				case f.Delay == tr.delay:
					hedging += ", delay: " + tr.delay.String()
				case !f.Current:
					continue
				}
				on, route := measure(t, &tr, hedging)
				forecast, known := f.Latency.Quantile(q)
				if !known {
					forecast = tr.timeout
				}
				was, is := quantile(off, q), quantile(on, q)
				t.Logf("delay %v: the %v-quantile is %v without, %v forecast, %v with hedging; load %.2f%% forecast, %.2f%% sent",
					f.Delay, q, was, forecast, is, 100*extra(f.Hedges, shadow), 100*extra(route.Counts.Hedges, route))
				if math.Abs(float64(forecast-is)) > .15*float64(is) {
					t.Errorf("delay %v: a %v-quantile of %v was forecast, %v measured", f.Delay, q, forecast, is)
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

// TestShadowByDefault: without settings of hedging there is a forecast for the requests that may
// be hedged, made of a share of them.
func TestShadowByDefault(t *testing.T) {
	for _, c := range []struct {
		name, service string
		endpoints     int
		watched       bool
	}{
		{"idempotent", "idempotent: true", 3, true},
		{"not idempotent", "idempotent: false", 3, false},
		{"one endpoint", "idempotent: true", 1, false},
		{"off", "idempotent: true, hedge: {mode: off}", 3, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := proxytest.NewMesh(t, proxytest.MeshOptions{Service: c.service, Apps: c.endpoints})
			calls := m.SendAtRate(4, 1000, time.Second)
			m.FinishAfter(time.Second, calls)
			m.OK(calls...)
			m.Settled()
			r := m.Consumer.Report().Services[0].Routes[0]
			n, share := r.Watched.Samples(), float64(len(calls))*config.DefaultPolicy().Hedge.Sample
			if c.watched != (n > 0) || float64(n) > 2*share {
				t.Errorf("%d of %d requests are watched", n, len(calls))
			}
			if n > 0 && (r.Mode != hedge.Shadow || r.Counts.Hedges != 0 || r.Forecasts[0].Requests == 0) {
				t.Errorf("mode %v, %d hedges sent, forecast for %d requests", r.Mode, r.Counts.Hedges, r.Forecasts[0].Requests)
			}
		})
	}
}
