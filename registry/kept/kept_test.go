package kept

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/remora-proxy/remora/registry"
)

// list returns endpoints with these ports.
func list(ports ...int) (all []registry.Endpoint) {
	for _, p := range ports {
		all = append(all, registry.Endpoint{Addr: fmt.Sprint("10.0.0.1:", p), Weight: 1})
	}
	return all
}

// log is a notify function that writes down ports and sources.
type log []string

func (l *log) notify(s *registry.Snapshot) {
	var ports []string
	for _, e := range s.Endpoints {
		ports = append(ports, strings.TrimPrefix(e.Addr, "10.0.0.1:"))
	}
	*l = append(*l, string(s.Source)+" "+strings.Join(ports, ","))
}

// TestList: what a list delivers, by what its source says and when. The cache has port 9.
func TestList(t *testing.T) {
	type step struct {
		after time.Duration
		ports []int // nil: the source says nothing
	}
	none := []int{}
	for _, c := range []struct {
		name  string
		steps []step
		want  []string
	}{
		{"a list and its changes", []step{{0, []int{1, 2}}, {0, []int{2, 1}}, {0, []int{2}}, {0, []int{2}}}, []string{"live 1,2", "live 2"}},
		{"a silent source", []step{{time.Minute, nil}}, []string{"cache 9"}},
		{"not silent for long", []step{{time.Second - 1, []int{1}}, {time.Minute, nil}}, []string{"live 1"}},
		{"silent for too long", []step{{time.Second + 1, []int{1}}}, []string{"cache 9", "live 1"}},
		{"the cache was right", []step{{2 * time.Second, []int{9}}, {0, []int{9}}}, []string{"cache 9", "live 9"}},
		{"empty from the start", []step{{0, none}, {5*time.Second - 1, nil}}, []string{"cache 9"}},
		{"empty for long from the start", []step{{0, none}, {5*time.Second + 1, nil}}, []string{"cache 9", "live "}},
		{"empty from the start for a moment", []step{{0, none}, {time.Second, []int{1}}, {time.Minute, nil}}, []string{"cache 9", "live 1"}},
		{"empty after the cache", []step{{2 * time.Second, none}, {5*time.Second - 1, nil}}, []string{"cache 9"}},
		{"empty for long after the cache", []step{{2 * time.Second, none}, {5*time.Second + 1, nil}}, []string{"cache 9", "live "}},
		{"empty for a moment", []step{{0, []int{1}}, {0, none}, {5*time.Second - 1, []int{1}}, {time.Minute, nil}}, []string{"live 1"}},
		{"others after a moment", []step{{0, []int{1}}, {0, none}, {time.Second, []int{2}}, {time.Minute, nil}}, []string{"live 1", "live 2"}},
		{"empty again", []step{{0, []int{1}}, {0, none}, {3 * time.Second, []int{1}}, {0, none}, {4 * time.Second, nil}}, []string{"live 1"}},
		{"empty for long", []step{{0, []int{1}}, {0, none}, {time.Second, none}, {4*time.Second + 1, nil}}, []string{"live 1", "live "}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			remember(t, dir, list(9))
			synctest.Test(t, func(t *testing.T) {
				cache := openCache(t, dir)
				defer cache.Close()
				var got log
				l := Options{Cache: cache, Origin: "here"}.Watch("compute", got.notify)
				for _, s := range c.steps {
					time.Sleep(s.after)
					synctest.Wait()
					if s.ports != nil {
						l.Set(list(s.ports...), AfterChange)
					}
				}
				l.Close()
				l.Set(list(8), AfterChange)
				if !slices.Equal(got, c.want) {
					t.Errorf("delivered %q, want %q", got, c.want)
				}
			})
		})
	}
}

// TestOtherOrigin: a record of another source is not used.
func TestOtherOrigin(t *testing.T) {
	dir := t.TempDir()
	remember(t, dir, list(9))
	synctest.Test(t, func(t *testing.T) {
		cache := openCache(t, dir)
		defer cache.Close()
		var got log
		Options{Cache: cache, Origin: "elsewhere"}.Watch("compute", got.notify)
		time.Sleep(time.Minute)
		if len(got) > 0 {
			t.Errorf("delivered %q", got)
		}
	})
}

// remember stores the endpoints as a former process did.
func remember(t *testing.T, dir string, endpoints []registry.Endpoint) {
	t.Helper()
	c := openCache(t, dir)
	c.Store(registry.Record{Service: "compute", Origin: "here", Changed: time.Now(), Endpoints: endpoints})
	c.Close()
}

func openCache(t *testing.T, dir string) *registry.Cache {
	t.Helper()
	c, err := registry.OpenCache(dir, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestCloseDuringDoubt: a list that is closed while its emptiness is doubted delivers nothing more, and the cache has the last
// endpoints.
func TestCloseDuringDoubt(t *testing.T) {
	dir := t.TempDir()
	remember(t, dir, list(9))
	synctest.Test(t, func(t *testing.T) {
		cache := openCache(t, dir)
		defer cache.Close()
		var got log
		l := Options{Cache: cache, Origin: "here"}.Watch("compute", got.notify)
		l.Set(list(1), AfterChange)
		l.Set(nil, AfterChange)
		l.Close()
		time.Sleep(time.Minute)
		synctest.Wait()
		if rec, ok := cache.Load("compute"); !ok || rec.Origin != "here" || !slices.Equal(rec.Endpoints, list(1)) || len(got) != 1 {
			t.Errorf("delivered %q, cached %+v", got, rec)
		}
	})
}

// TestDoubts: what the source knows of its doubts, from the empty list until the doubt ends.
func TestDoubts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d registry.Tally
		var got log
		l, closed := Options{Tally: &d}.Watch("compute", got.notify), Options{Tally: &d}.Watch("other", got.notify)
		expect := func(what string, services, endpoints int) {
			t.Helper()
			var now registry.Condition
			if d.Add(&now); now.Doubted != services || now.Kept != endpoints {
				t.Errorf("%s: %+v, want %d services with %d endpoints", what, now, services, endpoints)
			}
		}
		l.Set(list(1, 2), AfterChange)
		closed.Set(list(3), AfterChange)
		expect("two lists", 0, 0)
		l.Set(nil, AfterChange)
		closed.Set(nil, AfterReconnect)
		expect("both empty", 2, 3)
		closed.Close()
		expect("one closed", 1, 2)
		l.Set(list(2), AfterChange)
		expect("another list", 0, 0)
		l.Set(nil, AfterChange)
		expect("empty again", 1, 1)
		time.Sleep(AfterChange + 1)
		synctest.Wait()
		expect("believed", 0, 0)
	})
}

// TestQuestions: the endpoints of the cache are those of a start, until the source is heard. Endpoints that the source holds, and
// records that can't be used, are counted.
func TestQuestions(t *testing.T) {
	dir := t.TempDir()
	remember(t, dir, list(9))
	synctest.Test(t, func(t *testing.T) {
		cache := openCache(t, dir)
		defer cache.Close()
		var tally registry.Tally
		var got log
		l := Options{Cache: cache, Origin: "here", Tally: &tally}.Watch("compute", got.notify)
		if l.Service() != "compute" || !slices.Equal(l.Cached(), list(9)) {
			t.Errorf("%s has %+v in the cache", l.Service(), l.Cached())
		}
		l.SetHeld(2)
		l.SetUnusable(3)
		l.Set(list(1, 2, 3), AfterChange)
		var now registry.Condition
		if tally.Add(&now); now.Kept != 2 || now.Doubted != 1 || now.Unusable != 3 || l.Cached() != nil {
			t.Errorf("%+v, and %+v in the cache", now, l.Cached())
		}
		l.SetHeld(0)
		l.Set(list(1), AfterChange)
		now = registry.Condition{}
		if tally.Add(&now); now.Kept != 0 || now.Doubted != 0 {
			t.Errorf("%+v", now)
		}
		l.Close()
	})
}

// TestConfirmed: a list that the source confirms is as old as the cache says, and another one is new.
func TestConfirmed(t *testing.T) {
	dir := t.TempDir()
	for name, ports := range map[string]int{"confirmed": 9, "another": 8} {
		var cached time.Time
		synctest.Test(t, func(t *testing.T) {
			cached = time.Now()
			remember(t, dir, list(9))
			time.Sleep(time.Hour)
			cache := openCache(t, dir)
			defer cache.Close()
			var last atomic.Pointer[registry.Snapshot]
			l := Options{Cache: cache, Origin: "here", Wait: time.Minute}.Watch("compute", last.Store)
			if time.Sleep(time.Minute - 1); last.Load() != nil {
				t.Errorf("%s: the cache is used before the wait is over", name)
			}
			time.Sleep(time.Microsecond)
			synctest.Wait()
			if s := last.Load(); s == nil || !s.Changed.Equal(cached) {
				t.Fatalf("%s: %+v from the cache", name, s)
			}
			time.Sleep(time.Hour)
			l.Set(list(ports), AfterChange)
			s, want := last.Load(), map[int]time.Time{9: cached, 8: time.Now()}[ports]
			if !s.Changed.Equal(want) || s.Source != registry.SourceLive {
				t.Errorf("%s: changed at %v, want %v", name, s.Changed, want)
			}
			l.Close()
		})
	}
}

// TestEmptyCache: a service that had no endpoints before the start has none at once if the source says so.
func TestEmptyCache(t *testing.T) {
	dir := t.TempDir()
	remember(t, dir, nil)
	synctest.Test(t, func(t *testing.T) {
		cache := openCache(t, dir)
		defer cache.Close()
		var got log
		l := Options{Cache: cache, Origin: "here"}.Watch("compute", got.notify)
		l.Set(nil, AfterChange)
		l.Close()
		if !slices.Equal(got, []string{"live "}) {
			t.Errorf("delivered %q", got)
		}
	})
}
