package health

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/remora-proxy/remora/registry"
)

// missing returns endpoints whose checks fail at once.
func missing(n int) (all []registry.Endpoint) {
	for i := range n {
		all = append(all, registry.Endpoint{Addr: fmt.Sprintf("unix:/nowhere/%02d", i)})
	}
	return all
}

// timed is a snapshot, and when it came.
type timed struct {
	at time.Duration
	*registry.Snapshot
}

// followTimed follows endpoints, and keeps their snapshots.
func followTimed(c Check, first []registry.Endpoint) (f *Follower, got *[]timed) {
	return followSource(c, &source{first: first})
}

func followSource(c Check, src *source) (f *Follower, got *[]timed) {
	begin := time.Now()
	got = new([]timed)
	o := Options{Check: c, Protocol: "http", Logger: slog.New(slog.DiscardHandler)}
	return Follow(src, "s", o, func(s *registry.Snapshot) { *got = append(*got, timed{time.Since(begin), s}) }), got
}

// TestSpread: the first checks of endpoints that come together are spread over the interval, and later ones, too.
func TestSpread(t *testing.T) {
	const endpoints, rounds = 20, 3
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var mu sync.Mutex
		asked := map[string][]time.Duration{}
		f := Follow(&source{first: missing(endpoints)}, "s", Options{
			Check: Check{Interval: spread, Timeout: timeout, Healthy: 2, Unhealthy: 3}, Logger: slog.New(slog.DiscardHandler),
			Other: func(addr string) string {
				mu.Lock()
				defer mu.Unlock()
				asked[addr] = append(asked[addr], time.Since(begin))
				return ""
			},
		}, func(*registry.Snapshot) {})
		time.Sleep(2 * rounds * spread)
		f.Stop()
		for i := range rounds {
			var at []time.Duration
			for _, e := range missing(endpoints) {
				at = append(at, asked[e.Addr][i])
			}
			slices.Sort(at)
			if first := spread * time.Duration(i) * 9 / 10; at[0] < first || at[endpoints-1] > first*11/9+spread {
				t.Errorf("round %d is from %v to %v", i, at[0], at[endpoints-1])
			}
			if n := len(slices.Compact(at)); n < endpoints {
				t.Errorf("round %d: %d checks at %d times", i, endpoints, n)
			}
		}
	})
}

// TestSettle: verdicts that change soon after a snapshot are in one snapshot together, which comes as soon as it may.
func TestSettle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, got := followTimed(Check{Interval: settle / 2, Timeout: timeout, Healthy: 1, Unhealthy: 1}, missing(3))
		time.Sleep(time.Minute)
		f.Stop()
		if len(*got) != 2 || (*got)[0].at != 0 || (*got)[1].at != settle {
			t.Fatalf("snapshots %+v", *got)
		}
		for i, s := range *got {
			for _, e := range s.Endpoints {
				if e.Unhealthy != (i == 1) || e.Down {
					t.Errorf("snapshot %d: %+v", i, e)
				}
			}
		}
	})
}

// TestLateStart: an endpoint whose first strict check does not end delays the others by the time of one check. Without others the
// first snapshot waits for the end.
func TestLateStart(t *testing.T) {
	const lasts = time.Hour
	c := Check{
		Path: "/", Interval: 2 * time.Hour, Timeout: 7 * time.Second, Healthy: 1, Unhealthy: 1, Strict: true,
		TLS: func(string, string) *tls.Config { time.Sleep(lasts); return &tls.Config{} },
	}
	for want, others := range map[time.Duration][]registry.Endpoint{c.Timeout: {{Addr: "10.0.0.1:80", Protocol: "link"}}, lasts: nil} {
		synctest.Test(t, func(t *testing.T) {
			src := &source{first: append(missing(1), others...)}
			f, got := followSource(c, src)
			time.Sleep(c.Timeout - 1)
			src.set(src.first...) // does not change when that is
			time.Sleep(want + time.Minute)
			f.Stop()
			if len(*got) != 1 || (*got)[0].at != want {
				t.Fatalf("snapshots %+v, want one at %v", *got, want)
			}
			for _, e := range (*got)[0].Endpoints {
				if e.Down != (e.Protocol == "") {
					t.Errorf("%+v", e)
				}
			}
		})
	}
}

// TestKnownAtStart: an endpoint whose verdict is known from before a reload does not wait for a strict check.
func TestKnownAtStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		o := Options{
			Check: Check{
				Path: "/", Interval: time.Hour, Timeout: time.Minute, Healthy: 1, Unhealthy: 1, Strict: true,
				TLS: func(string, string) *tls.Config { time.Sleep(time.Hour); return &tls.Config{} },
			},
			Protocol: "http", Verdicts: Verdicts{missing(1)[0].Addr: {healthy: true}}, Logger: slog.New(slog.DiscardHandler),
		}
		var at []time.Duration
		f := Follow(&source{first: missing(1)}, "s", o, func(s *registry.Snapshot) {
			if at = append(at, time.Since(begin)); s.Endpoints[0].Down {
				t.Errorf("%+v", s.Endpoints[0])
			}
		})
		time.Sleep(time.Minute)
		synctest.Wait()
		if !slices.Equal(at, []time.Duration{0}) {
			t.Errorf("snapshots at %v", at)
		}
		f.Stop()
	})
}

// TestGoneWhileAsked: an endpoint that leaves during a check is not asked again, and the outcome changes nothing.
func TestGoneWhileAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		c := Check{
			Path: "/", Interval: spread, Timeout: time.Hour, Healthy: 1, Unhealthy: 1,
			TLS: func(string, string) *tls.Config { asked.Add(1); time.Sleep(time.Minute); return &tls.Config{} },
		}
		src, snapshots := &source{first: missing(1)}, 0
		f := Follow(src, "s", Options{Check: c, Protocol: "http", Logger: slog.New(slog.DiscardHandler)}, func(*registry.Snapshot) { snapshots++ })
		time.Sleep(spread)
		src.set()
		time.Sleep(time.Hour)
		if f.Stop(); asked.Load() != 1 || snapshots != 2 || len(f.Verdicts()) != 0 {
			t.Errorf("asked %d times, %d snapshots, verdicts %v", asked.Load(), snapshots, f.Verdicts())
		}
	})
}

// TestGoneBeforeAsked: an endpoint that leaves before its check is due is not asked.
func TestGoneBeforeAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := &source{first: missing(3)}
		var asked atomic.Int32
		o := Options{
			Check:  Check{Interval: time.Hour, Timeout: timeout, Healthy: 1, Unhealthy: 1},
			Other:  func(string) string { asked.Add(1); return "" },
			Logger: slog.New(slog.DiscardHandler),
		}
		f := Follow(src, "s", o, func(*registry.Snapshot) {})
		time.Sleep(2 * spread)
		before := asked.Load() // the next checks are in an hour
		src.set(missing(1)...)
		time.Sleep(2 * time.Hour)
		f.Stop()
		if now := asked.Load(); before != 3 || now < before+1 || now > before+2 {
			t.Errorf("asked %d times, and then %d times", before, now-before)
		}
	})
}

// TestManyDue: an endpoint whose check is due while the most are in flight is asked once another check has ended.
func TestManyDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		c := Check{
			Path: "/", Interval: spread, Timeout: time.Hour, Healthy: 1, Unhealthy: 1,
			TLS: func(string, string) *tls.Config { asked.Add(1); time.Sleep(time.Minute); return &tls.Config{} },
		}
		f, _ := followTimed(c, missing(parallel+1))
		for minute := range int32(3) {
			time.Sleep(2 * spread)
			synctest.Wait()
			if now := asked.Load(); now != (minute+1)*parallel {
				t.Errorf("in minute %d: %d checks have begun", minute, now)
			}
			time.Sleep(time.Minute - 2*spread)
		}
		f.Stop()
	})
}

// TestStop: no check is in flight after Stop. A check knows the name that its address was resolved from.
func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, isEnded := make(chan string), false
		c := Check{
			Path: "/", Interval: time.Second, Timeout: timeout, Healthy: 1, Unhealthy: 1,
			TLS: func(_, host string) *tls.Config {
				begun <- host
				time.Sleep(time.Hour)
				isEnded = true
				return &tls.Config{}
			},
		}
		endpoints := missing(1)
		endpoints[0].Host = "a.test"
		f, _ := followTimed(c, endpoints)
		if host := <-begun; host != "a.test" {
			t.Errorf("the host is %q", host)
		}
		if f.Stop(); !isEnded {
			t.Error("a check is in flight")
		}
	})
}
