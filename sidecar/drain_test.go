package sidecar

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/proxy/admin"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/handover"
	"github.com/remora-proxy/remora/registry"
)

// fakeRegistry is a registrar, and the handle of its only registration.
type fakeRegistry struct {
	withdrawn atomic.Bool
	yielded   atomic.Bool
	closing   func(ctx context.Context) error
}

func (f *fakeRegistry) Register(registry.Registration) registry.Handle { return f }
func (f *fakeRegistry) Yield()                                         { f.yielded.Store(true) }
func (f *fakeRegistry) Withdraw()                                      { f.withdrawn.Store(true) }
func (f *fakeRegistry) Restore()                                       { f.withdrawn.Store(false); f.yielded.Store(false) }
func (f *fakeRegistry) Change(registry.Registration)                   {}
func (f *fakeRegistry) Close(ctx context.Context) error                { return f.closing(ctx) }
func (f *fakeRegistry) State() registry.State                          { return registry.Registered }
func (f *fakeRegistry) Err() error                                     { return nil }

// inProcess starts a sidecar in this process, in front of an application.
func inProcess(t *testing.T, path string) (s *Sidecar, egress string) {
	t.Helper()
	egress = harness.FreeAddrs(t, 1)[0]
	cfg, err := config.Parse("test.yaml", []byte(`admin: {address: ""}`+harness.OneApp(egress, harness.NewApp(t).Addr, "")), nil)
	if err != nil {
		t.Fatal(err)
	}
	if s, err = start(t.Context(), quiet(t, cfg, path)); err != nil {
		t.Fatal(err)
	}
	return s, egress
}

// registerAt registers one endpoint of s.
func (s *Sidecar) registerAt(fake *fakeRegistry) {
	entry := &registration{registrar: fake, log: s.log}
	entry.start()
	s.changing.Lock()
	defer s.changing.Unlock()
	s.registrations.all = []*registration{entry}
}

// TestYieldBeforeRelease: the predecessor yields its registrations before it tells the
// successor that it has. If the successor does not serve, the predecessor resumes them.
func TestYieldBeforeRelease(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	path := filepath.Join(harness.SocketDir(t), "remora.sock")
	s, _ := inProcess(t, path)
	defer s.stop()
	fake := &fakeRegistry{closing: func(context.Context) error { return nil }}
	s.registerAt(fake)
	successor, err := handover.Dial(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer successor.Close()
	_ = successor.SetDeadline(time.Now().Add(harness.Patience))
	_, sockets, err := successor.Receive()
	if err != nil || len(sockets) != 1 {
		t.Fatalf("%d sockets, %v", len(sockets), err)
	}
	for _, ln := range sockets {
		ln.Close()
	}
	if fake.yielded.Load() {
		t.Error("yielded to a process that may not be able to serve")
	}
	if err := errors.Join(successor.Say(handover.Ready), successor.Hear(handover.Released)); err != nil {
		t.Fatal(err)
	}
	if !fake.yielded.Load() {
		t.Error("the successor may register while this process still renews")
	}
	successor.Close()
	eventually.Nil(t, "the endpoint to be taken back", func() error {
		if fake.yielded.Load() {
			return errors.New("still yielded")
		}
		return nil
	})
}

// TestVerdictWhileYielded: if the application fails its check while its registration is
// yielded, the endpoint is withdrawn once the registration is resumed.
func TestVerdictWhileYielded(t *testing.T) {
	app := &harness.CheckedApp{}
	fake := &fakeRegistry{}
	a := &registration{
		check:     config.Check{HTTP: "/healthz", Interval: 5 * time.Millisecond, Timeout: harness.Patience, Healthy: 1, Unhealthy: 1},
		registrar: fake, app: []string{app.Start(t)}, log: slog.New(slog.DiscardHandler),
	}
	a.start()
	defer a.stop()
	eventually.Nil(t, "the registration", func() error {
		if !a.isRegistered() {
			return errors.New("not registered")
		}
		return nil
	})
	a.yield()
	app.Down.Store(true)
	for checks := app.Checks.Load(); app.Checks.Load() < checks+3; {
		time.Sleep(time.Millisecond)
	}
	if fake.withdrawn.Load() {
		t.Error("withdrawn, although a successor owns it")
	}
	a.resume()
	eventually.Nil(t, "the endpoint to be withdrawn", func() error {
		if !fake.withdrawn.Load() {
			return errors.New("registered")
		}
		return nil
	})
	app.Down.Store(false)
	eventually.Nil(t, "the endpoint to be restored", func() error {
		if fake.withdrawn.Load() {
			return errors.New("withdrawn")
		}
		return nil
	})
}

// TestDrainDeregistersFirst: a sidecar serves as before until the registry has removed
// its registrations. A registry that fails does not stop the drain.
func TestDrainDeregistersFirst(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	s, egress := inProcess(t, "")
	defer s.stop()
	removals := 0
	fake := &fakeRegistry{closing: func(ctx context.Context) error {
		removals++
		if _, bounded := ctx.Deadline(); !bounded {
			t.Error("the removal has no deadline")
		}
		client := http.Client{Transport: &http.Transport{DisableKeepAlives: false}}
		defer client.CloseIdleConnections()
		resp, err := client.Get("http://" + egress + "/")
		if err != nil {
			t.Errorf("a request during the removal: %v", err)
			return err
		}
		resp.Body.Close()
		if resp.StatusCode != 200 || resp.Close {
			t.Errorf("a request during the removal: %d, close %v", resp.StatusCode, resp.Close)
		}
		if p := s.admin.Phase(); p != admin.Draining {
			t.Errorf("phase %v during the removal", p)
		}
		return errors.New("the registry is down")
	}}
	s.registerAt(fake)
	s.startDrain()
	harness.Receive(t, "the drain", s.drained)
	if removals != 1 {
		t.Errorf("%d removals, want 1", removals)
	}
	harness.Refused(t, egress)
}

// TestDrainEndsReload: a drain does not wait for a reload that waits for endpoints.
func TestDrainEndsReload(t *testing.T) {
	var z zone
	s, egress := resolving(t, &z)
	z.hangs = true
	reloaded := make(chan error, 1)
	next := configured(t, egress, `endpoints: ["127.0.0.1:1"]}, other: {discover: static, endpoints: ["nowhere.test:80"]`)
	go func() {
		s.changing.Lock()
		defer s.changing.Unlock()
		reloaded <- s.reloads.apply(next)
	}()
	eventually.Nil(t, "the lookup of the reload", func() (err error) {
		z.change(func() {
			if z.lookups["nowhere.test"] == 0 {
				err = errors.New("none")
			}
		})
		return err
	})
	s.startDrain()
	var refused *refusal
	if err := harness.Receive(t, "the end of the reload", reloaded); !errors.As(err, &refused) || refused.code != refusedDraining {
		t.Errorf("the reload ends with %v", err)
	}
	harness.Receive(t, "the drain", s.drained)
}

// TestRetireClosesLinksLast: listeners that a reload has removed do not wait for the links of others, in whatever order they are.
func TestRetireClosesLinksLast(t *testing.T) {
	for name, order := range map[string][]string{"link first": {"ingress", "other"}, "link last": {"other", "ingress"}} {
		t.Run(name, func(t *testing.T) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
			free := harness.FreeAddrs(t, 3)
			cfg, err := config.Parse("test.yaml", fmt.Appendf(nil, `
admin: {address: ""}
listeners:
  - {name: egress, address: %q, protocol: http, service: far}
  - {name: ingress, address: %q, protocol: link, service: local}
  - {name: other, address: %q, protocol: http, service: local}
services:
  far: {discover: static, endpoints: [%q], protocol: link, connect_timeout: 15s, timeout: 2m}
  local: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s, timeout: 2m}`,
				free[0], free[1], free[2], free[1], harness.NewApp(t).Addr), nil)
			if err != nil {
				t.Fatal(err)
			}
			s, err := start(t.Context(), quiet(t, cfg, ""))
			if err != nil {
				t.Fatal(err)
			}
			if status, _, _, err := harness.Get(free[0]); status != http.StatusOK {
				t.Errorf("response %d, %v", status, err)
			}
			var closed []*openListener
			for _, name := range order {
				closed = append(closed, s.listeners.byName[name])
			}
			done := make(chan struct{})
			go func() {
				defer close(done)
				s.retire(nil, closed, 10*harness.Patience)
			}()
			eventually.Nil(t, "the end of the listener without links", func() error {
				nc, err := net.Dial("tcp", free[2])
				if err != nil {
					return nil
				}
				nc.Close()
				return errors.New("it accepts")
			})
			if nc, err := net.Dial("tcp", free[1]); err != nil {
				t.Errorf("the listener with a link: %v", err)
			} else {
				nc.Close()
			}
			s.stop() // ends the wait
			harness.Receive(t, "the end of the other listener", done)
			harness.Refused(t, free[1])
		})
	}
}
