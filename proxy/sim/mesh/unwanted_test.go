package mesh

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// unwantedCases are meshes in which attempts lose to hedges, or callers leave. most is the most work per request of
// applications that stop, as a share of that with cancel: finish. Each case has so many seeds that chance makes less than
// the tenth of P99 that the test allows.
var unwantedCases = []struct {
	name, script string
	most         float64
	seeds        uint64
}{
	{"freezes of 50 ms", "service 1ms sigma 0.5\nstalls every 2s for 50ms\nload 600/s for 20s", 1, 3},
	{"5% stragglers", "service 4.6ms sigma 0.5\nstragglers 5% take 45ms\nload 600/s for 15s", 0.92, 12},
	{"a slow replica", "service 1ms sigma 0.5\nload 1000/s for 10s\nat 0s slow provider 1 x12", 0.92, 3},
	{"callers that leave", "service 10ms sigma 1\nload 600/s for 10s\nabandon 20%", 0.92, 3},
}

// meanRun has means over runs of one Spec with several seeds, in milliseconds.
type meanRun struct{ work, p50, p99, p999 float64 }

func (m meanRun) String() string {
	return fmt.Sprintf("%.2f ms of work per request, P50 %.2f ms, P99 %.1f ms, P99.9 %.1f ms", m.work, m.p50, m.p99, m.p999)
}

// runUnwanted runs a case. more has further lines of the script.
func runUnwanted(t *testing.T, script string, seeds uint64, cancel, more string) (mean meanRun) {
	t.Helper()
	script += "\nthreads 64\nwarmup 3s\nconsumer idempotent: true\nconsumer timeout: 2s\nconsumer hedge: {mode: on}\n" +
		"consumer cancel: " + cancel + "\nprovider cancel: " + cancel + "\n" + more
	for seed := range seeds {
		s := NewSpec()
		s.Seed = seed
		for line := range strings.Lines(script) {
			w := split(strings.TrimSpace(line))
			s.read(w)
			if err := w.end(); err != nil {
				t.Fatal(err)
			}
		}
		r := Run(s)
		for _, wrong := range r.Violations {
			t.Error(wrong)
		}
		ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) / float64(seeds) }
		mean.work += ms(r.Worked) / float64(max(1, r.Reached))
		mean.p50 += ms(r.Quantile(.5))
		mean.p99 += ms(r.Quantile(.99))
		mean.p999 += ms(r.Quantile(.999))
	}
	return mean
}

// TestUnwantedWork: cancel: auto saves work of applications that stop when their connection closes. It makes no
// request slower, whether they stop or not.
func TestUnwantedWork(t *testing.T) {
	for _, c := range unwantedCases {
		for _, hops := range []struct{ name, line string }{{"one hop", "direct\n"}, {"two hops", ""}} {
			t.Run(c.name+"/"+hops.name, func(t *testing.T) {
				finish := runUnwanted(t, c.script, c.seeds, "finish", hops.line)
				stop := runUnwanted(t, c.script, c.seeds, "auto", hops.line+"stop")
				goOn := runUnwanted(t, c.script, c.seeds, "auto", hops.line)
				t.Logf("\nfinish:                     %v\nauto, applications stop:    %v\nauto, applications work on: %v", finish, stop, goOn)
				if saved := stop.work / finish.work; saved > c.most {
					t.Errorf("applications that stop work %.3f times as much, want at most %v", saved, c.most)
				}
				for _, r := range []meanRun{stop, goOn} {
					if r.p50 > 1.03*finish.p50 || r.p99 > 1.1*finish.p99 {
						t.Errorf("%v, and with cancel: finish %v", r, finish)
					}
				}
			})
		}
	}
}
