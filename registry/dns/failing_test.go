package dns

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/remora-proxy/remora/internal/srvname"
	"github.com/remora-proxy/remora/registry"
)

// TestFailing: names that don't resolve are known, with the addresses that stay in use, until they resolve or their
// watch ends.
func TestFailing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sick atomic.Bool // a.test has no address
		all := NewFailing()
		w := New(fixed{{Addr: "a.test:80"}, {Addr: "b.test:80"}, {Addr: "10.0.0.9:80"}}, Options{
			Failing: all, Lookup: func(_ context.Context, host string) (Answer, error) {
				if sick.Load() && host == "a.test" {
					return Answer{}, errors.New("no such host")
				}
				return Answer{Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")}, TTL: time.Second}, nil
			},
		})
		defer w.Close()
		plain := New(fixed{{Addr: "10.0.0.9:80"}}, Options{Failing: all})
		defer plain.Close()
		plain.Watch("plain", func(*registry.Snapshot) {})
		stop := w.Watch("s", func(*registry.Snapshot) {})
		settle := func() { time.Sleep(time.Minute); synctest.Wait() }
		expect := func(up bool, services, kept int) {
			t.Helper()
			now := all.Condition()
			if now.Up != up || now.Services != services || now.Kept != kept || (now.Code == registry.CodeUnresolved) == up ||
				!up && !strings.Contains(now.Err.Error(), "host a.test: no such host") {
				t.Errorf("%+v, want up %v, %d services, %d endpoints", now, up, services, kept)
			}
		}
		settle()
		expect(true, 1, 0)
		sick.Store(true)
		settle()
		expect(false, 1, 2)
		sick.Store(false)
		settle()
		expect(true, 1, 0)
		sick.Store(true)
		settle()
		stop()
		synctest.Wait()
		if now := all.Condition(); now.Services != 0 || now.Kept != 0 {
			t.Errorf("after the end of the watch: %+v", now)
		}
	})
}

// TestFailingLeaves: a name that is no longer listed fails no longer.
func TestFailingLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, source := NewFailing(), new(changing)
		w := New(source, Options{Failing: all, Lookup: func(_ context.Context, host string) (Answer, error) {
			if host == "a.test" {
				return Answer{}, errors.New("no such host")
			}
			return Answer{Addrs: addrs("10.0.0.1"), TTL: -1}, nil
		}})
		defer w.Close()
		w.Watch("s", func(*registry.Snapshot) {})
		synctest.Wait()
		for i, step := range []struct {
			hosts    string
			up       bool
			services int
		}{{"a.test", false, 1}, {"", true, 0}, {"a.test b.test", false, 1}, {"b.test", true, 1}, {"", true, 0}} {
			var endpoints []registry.Endpoint
			for _, host := range strings.Fields(step.hosts) {
				endpoints = append(endpoints, registry.Endpoint{Addr: host + ":80"})
			}
			source.set(endpoints...)
			synctest.Wait()
			if now := all.Condition(); now.Up != step.up || now.Services != step.services {
				t.Errorf("step %d: %+v", i, now)
			}
		}
	})
}

// TestEmptyAnswers: a name whose lookups succeed and find nothing any more does not resolve. Its addresses stay, and the log says
// so once.
func TestEmptyAnswers(t *testing.T) {
	for host, found := range map[string]Answer{
		"a.test":          {Addrs: addrs("10.0.0.1"), TTL: time.Second},
		"_http._tcp.test": {Targets: []Target{{"10.0.0.1:80", 1}}, TTL: time.Second},
	} {
		for name, before := range map[string][]Answer{"from the start": nil, "later": {found}} {
			t.Run(host+" "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var log bytes.Buffer // only the goroutine of the Watcher writes
					all, left := NewFailing(), before
					addr := host
					if !srvname.Is(host) {
						addr += ":80"
					}
					w := New(fixed{{Addr: addr}}, Options{
						Failing: all, Logger: slog.New(slog.NewTextHandler(&log, nil)),
						Lookup: func(context.Context, string) (Answer, error) { // the one lookup in flight
							if len(left) == 0 {
								return Answer{TTL: time.Second}, nil
							}
							a := left[0]
							left = left[1:]
							return a, nil
						},
					})
					var last *registry.Snapshot
					w.Watch("s", func(s *registry.Snapshot) { last = s })
					time.Sleep(time.Hour)
					synctest.Wait()
					if now := all.Condition(); now.Up || now.Code != registry.CodeUnresolved || !strings.Contains(now.Err.Error(), "host "+host+": it has no address") {
						t.Errorf("%+v", now)
					}
					if last == nil || len(last.Endpoints) != len(before) {
						t.Errorf("in use are %+v", last)
					}
					w.Close()
					if n := strings.Count(log.String(), "does not resolve"); n != 1 || !strings.Contains(log.String(), fmt.Sprintf("addresses=%d ", len(before))) {
						t.Errorf("the log says it %d times: %s", n, log.String())
					}
				})
			})
		}
	}
}

// TestFirstFailure: of several names that fail the condition has the first, by the alphabet. Names that were not looked up yet say nothing.
func TestFirstFailure(t *testing.T) {
	one, two, three := new(watch), new(watch), new(watch)
	asked := time.Now()
	bad, good := name{err: errNoAddress, due: asked}, name{due: asked}
	f := NewFailing()
	for i, step := range []struct {
		of    *watch
		names map[string]name
		want  string // the name that fails; "" means none
		up    bool
	}{
		{one, map[string]name{"a": {}}, "", false},
		{two, map[string]name{"d": bad}, "d", false},
		{one, map[string]name{"a": {}, "c": bad, "b": bad, "e": bad}, "b", false},
		{three, map[string]name{"a": good}, "b", false},
		{two, map[string]name{"a": bad, "d": bad}, "a", false},
		{one, map[string]name{"a": good, "b": good}, "a", false},
		{two, nil, "", true},
		{three, map[string]name{"a": {}}, "", true},
	} {
		f.set(step.of, step.names)
		now := f.Condition()
		got := ""
		if now.Err != nil {
			got = strings.TrimSuffix(strings.TrimPrefix(now.Err.Error(), "host "), ": "+errNoAddress.Error())
		}
		if got != step.want || now.Up != step.up {
			t.Errorf("step %d: %q fails, up %t; want %q, %t", i, got, now.Up, step.want, step.up)
		}
	}
	f.set(two, map[string]name{"a": bad})
	f.set(three, nil)
	f.set(one, nil)
	f.forget(two) // as in a reload
	f.set(one, map[string]name{"a": {}})
	if now := f.Condition(); now.Up || now.Services != 1 {
		t.Errorf("after a reload, before the name is looked up: %+v", now)
	}
	f.set(one, map[string]name{"a": good})
	f.set(three, map[string]name{"a": {}})
	f.set(two, map[string]name{"a": bad})
	f.forget(two)
	if now := f.Condition(); !now.Up || now.Services != 2 {
		t.Errorf("after the end of the watch that fails: %+v", now)
	}
	f.forget(three)
	f.set(two, map[string]name{"a": bad})
	f.forget(two)
	if now := f.Condition(); !now.Up || now.Services != 1 {
		t.Errorf("after the end of the watch that fails, beside one other: %+v", now)
	}
}

// TestFailsAcrossReload: a reload, which ends the watch of a name before it begins the next watch of it, does not end the failure.
func TestFailsAcrossReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, silent := NewFailing(), false
		lookup := func(ctx context.Context, _ string) (Answer, error) {
			if silent {
				<-ctx.Done()
			}
			return Answer{}, errors.New("no such host")
		}
		w := New(fixed{{Addr: "a.test:80"}}, Options{Failing: all, Lookup: lookup})
		w.Watch("s", func(*registry.Snapshot) {})
		synctest.Wait()
		before := all.Condition()
		if before.Up || before.Err == nil {
			t.Fatalf("before the reload: %+v", before)
		}
		silent = true
		known := w.Known()
		w.Close()
		source := &changing{}
		next := New(source, Options{Failing: all, Lookup: lookup, Known: known})
		defer next.Close()
		next.Watch("s", func(*registry.Snapshot) {})
		synctest.Wait() // the source says nothing at first
		if after := all.Condition(); after.Up || after.Err == nil {
			t.Errorf("before the first list after the reload: %+v", after)
		}
		source.set(registry.Endpoint{Addr: "a.test:80"})
		time.Sleep(defaultTimeout / 2)
		synctest.Wait()
		if after := all.Condition(); after.Up || after.Err == nil || after.Services != 1 || !after.Since.Equal(before.Since) {
			t.Errorf("after the reload: %+v, want as before it: %+v", after, before)
		}
	})
}
