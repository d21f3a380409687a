package several

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/remora-proxy/remora/registry"
)

var quiet = slog.New(slog.DiscardHandler)

// source is a source whose snapshots a test makes.
type source struct {
	notify func(*registry.Snapshot)
	stops  int
}

func (s *source) Watch(_ string, notify func(*registry.Snapshot)) (stop func()) {
	s.notify = notify
	return func() { s.stops++ }
}

// say delivers endpoints: "live 1,2" has the ports 1 and 2, of a weight.
func (s *source) say(text string, weight int) {
	kind, ports, _ := strings.Cut(text, " ")
	var all []registry.Endpoint
	for port := range strings.SplitSeq(ports, ",") {
		if port != "" {
			all = append(all, registry.Endpoint{Addr: "10.0.0.1:" + port, Weight: weight})
		}
	}
	s.notify(registry.NewSnapshot("compute", registry.Source(kind), time.Now(), all))
}

// TestSeveral: what two sources have together, by what each says. The endpoints of the second have the weight 2.
func TestSeveral(t *testing.T) {
	type step struct {
		of   int // 1 or 2; 0: time passes
		says string
	}
	const wait = "wait"
	for _, c := range []struct {
		name         string
		steps        []step
		first, merge []string
	}{
		{"both, in order", []step{{1, "live 1"}, {2, "live 2"}}, []string{"live 1*1"}, []string{"live 1*1 2*2"}},
		{"the second before", []step{{2, "live 2"}, {1, "live 1"}}, []string{"live 1*1"}, []string{"live 1*1 2*2"}},
		{"one address of both", []step{{2, "live 1,2"}, {1, "live 1"}}, []string{"live 1*1"}, []string{"live 1*1 2*2"}},
		{"the first is empty", []step{{1, "live "}, {2, "live 2"}}, []string{"live 2*2"}, []string{"live 2*2"}},
		{"the first becomes empty", []step{{1, "live 1"}, {2, "live 2"}, {1, "live "}, {1, "live 3"}},
			[]string{"live 1*1", "live 2*2", "live 3*1"}, []string{"live 1*1 2*2", "live 2*2", "live 2*2 3*1"}},
		{"both are empty", []step{{1, "live "}, {2, "live "}}, []string{"live "}, []string{"live "}},
		{"the first says nothing", []step{{2, "live 2"}, {0, wait}}, []string{"live 2*2"}, []string{"live 2*2"}},
		{"and says something later", []step{{2, "live 2"}, {0, wait}, {1, "live 1"}}, []string{"live 2*2", "live 1*1"}, []string{"live 2*2", "live 1*1 2*2"}},
		{"neither says anything", []step{{0, wait}}, nil, nil},
		{"the first from its cache", []step{{1, "cache 1"}, {2, "live 2"}, {1, "live 1"}},
			[]string{"cache 1*1", "live 1*1"}, []string{"cache 1*1 2*2", "live 1*1 2*2"}},
		{"the same again", []step{{1, "live 1"}, {2, "live "}, {1, "live 1"}, {2, "live "}}, []string{"live 1*1"}, []string{"live 1*1"}},
	} {
		for merge, want := range map[bool][]string{false: c.first, true: c.merge} {
			t.Run(fmt.Sprint(c.name, ", merge ", merge), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					sources := []*source{{}, {}}
					w := First(quiet, sources[0], sources[1])
					if merge {
						w = Merge(quiet, sources[0], sources[1])
					}
					var got []string
					version := uint64(0)
					stop := w.Watch("compute", func(s *registry.Snapshot) {
						if s.Service != "compute" || s.Version <= version {
							t.Errorf("version %d of %s after %d", s.Version, s.Service, version)
						}
						version = s.Version
						got = append(got, show(s))
					})
					for _, s := range c.steps {
						if s.of > 0 {
							sources[s.of-1].say(s.says, s.of)
							continue
						}
						time.Sleep(patience)
						synctest.Wait()
					}
					stop()
					stop()
					sources[0].say("live 9", 1)
					if !slices.Equal(got, want) {
						t.Errorf("delivered %q, want %q", got, want)
					}
					if sources[0].stops == 0 || sources[1].stops == 0 {
						t.Error("a source is still watched")
					}
				})
			})
		}
	}
}

func show(s *registry.Snapshot) string {
	var all []string
	for _, e := range s.Endpoints {
		all = append(all, fmt.Sprint(strings.TrimPrefix(e.Addr, "10.0.0.1:"), "*", e.Weight))
	}
	return string(s.Source) + " " + strings.Join(all, " ")
}

// TestTooMany: two sources together have no more endpoints than a service may have, and the log says so once.
func TestTooMany(t *testing.T) {
	first, second := &source{}, &source{}
	var log bytes.Buffer
	endpoints := 0
	Merge(slog.New(slog.NewTextHandler(&log, nil)), first, second).Watch("compute", func(s *registry.Snapshot) { endpoints = len(s.Endpoints) })
	for i, s := range []*source{first, second, first} {
		var all []registry.Endpoint
		for port := range registry.MaxEndpoints {
			all = append(all, registry.Endpoint{Addr: fmt.Sprintf("10.0.%d.1:%d", i, port+1), Weight: 1})
		}
		s.notify(registry.NewSnapshot("compute", registry.SourceLive, time.Now(), all))
	}
	if lines := strings.Count(log.String(), "too many endpoints"); endpoints != registry.MaxEndpoints || lines != 1 {
		t.Errorf("%d endpoints, and %d lines in the log", endpoints, lines)
	}
}

// TestStopByNotify: notify may stop the watch. No snapshot follows.
func TestStopByNotify(t *testing.T) {
	first, second := &source{}, &source{}
	n := 0
	var stop func()
	stop = Merge(quiet, first, second).Watch("compute", func(*registry.Snapshot) {
		if n++; n == 2 {
			stop()
		}
	})
	first.say("live 1", 1)
	second.say("live 2", 2)
	second.say("live 3", 2)
	second.say("live 4", 2)
	if n != 2 || first.stops != 1 || second.stops != 1 {
		t.Errorf("%d snapshots, stopped %d and %d times", n, first.stops, second.stops)
	}
}

// TestRevision: the endpoints of one source have its revision, those of several have none.
func TestRevision(t *testing.T) {
	for merge, want := range map[bool]int64{false: 7, true: 0} {
		sources := []*source{{}, {}}
		w := First(quiet, sources[0], sources[1])
		if merge {
			w = Merge(quiet, sources[0], sources[1])
		}
		got := int64(-1)
		defer w.Watch("compute", func(s *registry.Snapshot) { got = s.Revision })()
		for i, s := range sources {
			next := registry.NewSnapshot("compute", registry.SourceLive, time.Now(), []registry.Endpoint{{Addr: fmt.Sprint("10.0.0.1:", i+1), Weight: 1}})
			next.Revision = int64(7 + i)
			s.notify(next)
		}
		if got != want {
			t.Errorf("merge %v: revision %d, want %d", merge, got, want)
		}
	}
}

// TestCombined: a snapshot is unresolved if one of its parts is, and has changed when the last of its parts has. To be unresolved, or
// no longer, is news.
func TestCombined(t *testing.T) {
	type part struct {
		unresolved bool
		changed    int64 // in seconds
	}
	for _, c := range []struct {
		says         [3]part // of the first source, the second one, and the first one again
		first, merge []part
	}{
		{[3]part{{false, 5}, {false, 3}, {false, 9}}, []part{{false, 5}}, []part{{false, 5}}},
		{[3]part{{true, 3}, {false, 5}, {false, 9}}, []part{{true, 3}, {false, 9}}, []part{{true, 5}, {false, 9}}},
		{[3]part{{false, 5}, {true, 5}, {true, 9}}, []part{{false, 5}, {true, 9}}, []part{{true, 5}}},
	} {
		for merge, want := range map[bool][]part{false: c.first, true: c.merge} {
			sources := []*source{{}, {}}
			w := First(quiet, sources[0], sources[1])
			if merge {
				w = Merge(quiet, sources[0], sources[1])
			}
			var got []part
			stop := w.Watch("compute", func(s *registry.Snapshot) { got = append(got, part{s.Unresolved, s.Changed.Unix()}) })
			for i, p := range c.says {
				of := i % 2
				s := registry.NewSnapshot("compute", registry.SourceLive, time.Unix(p.changed, 0), []registry.Endpoint{{Addr: fmt.Sprint("10.0.0.1:", of+1)}})
				s.Unresolved = p.unresolved
				sources[of].notify(s)
			}
			if stop(); !slices.Equal(got, want) {
				t.Errorf("%+v, merge %t: %+v, want %+v", c.says, merge, got, want)
			}
		}
	}
}
