package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/remora-proxy/remora/internal/tasks"
	"github.com/remora-proxy/remora/registry"
	"github.com/remora-proxy/remora/registry/kept"
)

// played is a Registry whose nodes a test sets, without a network: time passes only while all wait.
type played struct {
	*Registry
	nodes map[key]value // guarded by the mutex of the mirror
	slow  time.Duration // that a read takes
}

func newPlayed(t *testing.T, cacheDir string) *played {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	cache, err := registry.OpenCache(cacheDir, registry.Protocols{"dubbo"}, log)
	if err != nil {
		t.Fatal(err)
	}
	p := &played{&Registry{log: log, root: "/dubbo", grace: grace, kept: kept.Options{Cache: cache, Origin: "here"}, tasks: tasks.New()}, map[key]value{}, 0}
	as(Service{Interface: hello})(&p.opt)
	p.mirror.init(p.tasks, func(_ context.Context, k key) (value, error) {
		time.Sleep(p.slow)
		p.mirror.mu.Lock()
		defer p.mirror.mu.Unlock()
		return p.nodes[k], nil
	})
	p.tasks.Go(p.run)
	p.mirror.connect(true)
	return p
}

func (p *played) set(k key, v value) {
	p.mirror.mu.Lock()
	p.nodes[k] = v
	p.mirror.mu.Unlock()
	p.mirror.changed(k.path)
}

// providers sets the children of the node of the providers.
func (p *played) providers(names ...string) { p.set(providersKey, value{children: names}) }

// watch returns what is delivered, and when.
func (p *played) watch() (stop func(), got *[]string) {
	begin := time.Now()
	got = new([]string)
	stop = unresolved{p.Registry}.Watch(hello, func(s *registry.Snapshot) {
		var addrs []string
		for _, e := range s.Endpoints {
			addrs = append(addrs, e.Addr)
		}
		*got = append(*got, fmt.Sprintf("%v %s %s", time.Since(begin), s.Source, strings.Join(addrs, " ")))
	})
	return stop, got
}

// end closes the Registry.
func (p *played) end() {
	p.tasks.Close()
	p.kept.Cache.Close()
}

// TestLookWaits: a look at nodes that are still read waits for them, and does nothing meanwhile.
func TestLookWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlayed(t, t.TempDir())
		p.slow = time.Second
		p.nodes[providersKey] = value{children: []string{"dubbo://10.0.0.1:1/a"}}
		p.nodes[mappingKey] = value{data: "app"}
		p.nodes[appKey] = value{children: []string{"one"}}
		p.nodes[instanceAt("one")] = value{data: instanceData("10.0.0.2", "", 2)}
		stop, got := p.watch()
		time.Sleep(time.Minute)
		synctest.Wait()
		stop()
		p.end()
		if want := []string{"3s live 10.0.0.1:1 10.0.0.2:2"}; !slices.Equal(*got, want) {
			t.Errorf("got  %q\nwant %q", *got, want)
		}
	})
}

// TestLooks: what is delivered after a start with the endpoint 10.0.0.1:1 in the cache, and when.
func TestLooks(t *testing.T) {
	const one, off, other = "dubbo://10.0.0.1:1/a", "dubbo://10.0.0.1:1/a?disabled=true", "dubbo://10.0.0.2:1/a"
	denied := value{err: errors.New("denied")}
	for name, c := range map[string]struct {
		start func(p *played) // sets the nodes before the watch
		later func(p *played) // changes them after an hour; nil does nothing
		want  []string
	}{
		"it is there": {func(p *played) { p.providers(one) }, nil, []string{"0s live 10.0.0.1:1"}},
		"nothing is there": {func(*played) {}, nil,
			[]string{"0s live 10.0.0.1:1", "35s live "}}, // held, and then doubted
		"it must not be used": {func(p *played) { p.providers(off) }, nil,
			[]string{"0s cache 10.0.0.1:1", "30s live "}}, // doubted for longer after a start
		"it must not be used, later": {func(p *played) { p.providers(one) }, func(p *played) { p.providers(off) },
			[]string{"0s live 10.0.0.1:1", "1h0m5s live "}},
		"another is there":       {func(p *played) { p.providers(other) }, nil, []string{"0s live 10.0.0.1:1 10.0.0.2:1", "30s live 10.0.0.2:1"}},
		"only malformed records": {func(p *played) { p.providers("?") }, nil, []string{"1s cache 10.0.0.1:1"}},
		"a node that can't be read": {func(p *played) { p.providers(other); p.set(mappingKey, denied) }, nil,
			[]string{"1s cache 10.0.0.1:1"}},
		"a node that can be read later": {func(p *played) { p.providers(other); p.set(mappingKey, denied) }, func(p *played) { p.set(mappingKey, value{}) },
			[]string{"1s cache 10.0.0.1:1", "1h0m0s live 10.0.0.1:1 10.0.0.2:1", "1h0m30s live 10.0.0.2:1"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				before := newPlayed(t, dir)
				before.providers(one)
				stop, _ := before.watch()
				synctest.Wait()
				stop()
				before.end()

				p := newPlayed(t, dir)
				c.start(p)
				stop, got := p.watch()
				time.Sleep(time.Hour)
				if c.later != nil {
					c.later(p)
					time.Sleep(time.Hour)
				}
				synctest.Wait()
				stop()
				p.end()
				if !slices.Equal(*got, c.want) {
					t.Errorf("got  %q\nwant %q", *got, c.want)
				}
			})
		})
	}
}
