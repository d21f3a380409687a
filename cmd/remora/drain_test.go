package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/proxy/admin"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/handover"
	"github.com/remora-proxy/remora/registry"
)

// fakeRegistry is a registrar and the handle of its one registration.
type fakeRegistry struct {
	withdrawn atomic.Bool
	yielded   atomic.Bool
	leaving   func(ctx context.Context) error
}

func (f *fakeRegistry) Register(registry.Registration) registry.Handle { return f }
func (f *fakeRegistry) Yield()                                         { f.yielded.Store(true) }
func (f *fakeRegistry) Withdraw()                                      { f.withdrawn.Store(true) }
func (f *fakeRegistry) Restore()                                       { f.withdrawn.Store(false); f.yielded.Store(false) }
func (f *fakeRegistry) Change(registry.Registration)                   {}
func (f *fakeRegistry) Close(ctx context.Context) error                { return f.leaving(ctx) }
func (f *fakeRegistry) State() registry.State                          { return registry.Registered }
func (f *fakeRegistry) Err() error                                     { return nil }

// inProcess is a sidecar in this process, in front of an application.
func inProcess(t *testing.T, door string) (s *sidecar, egress string) {
	t.Helper()
	egress = freeAddrs(t, 1)[0]
	cfg, err := config.Parse("test.yaml", []byte(`admin: {address: ""}`+oneApp(egress, newApp(t).addr, "")), nil)
	if err != nil {
		t.Fatal(err)
	}
	if s, err = start(t.Context(), cfg, door, slog.New(slog.DiscardHandler), new(slog.LevelVar)); err != nil {
		t.Fatal(err)
	}
	return s, egress
}

// announceTo has s announce one endpoint.
func (s *sidecar) announceTo(fake *fakeRegistry) {
	entry := &announcement{registrar: fake, log: s.log}
	entry.start()
	s.changing.Lock()
	defer s.changing.Unlock()
	s.announcements = []*announcement{entry}
}

// TestYieldFirst: a successor hears that it may announce when nothing is put any more
// here; when it does not come to serve, that goes on.
func TestYieldFirst(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	door := filepath.Join(socketDir(t), "door")
	s, _ := inProcess(t, door)
	defer s.stop()
	fake := &fakeRegistry{leaving: func(context.Context) error { return nil }}
	s.announceTo(fake)
	successor, err := handover.Dial(t.Context(), door)
	if err != nil {
		t.Fatal(err)
	}
	defer successor.Close()
	_ = successor.SetDeadline(time.Now().Add(patience))
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
		t.Error("a successor may announce while this process goes on to")
	}
	successor.Close()
	eventually.Nil(t, "the endpoint to be taken back", func() error {
		if fake.yielded.Load() {
			return errors.New("still yielded")
		}
		return nil
	})
}

// TestVerdictWhileYielded: an application that fails its check while a successor is
// there is withdrawn when that does not come to serve.
func TestVerdictWhileYielded(t *testing.T) {
	app := &switchable{}
	fake := &fakeRegistry{}
	a := &announcement{
		check:     config.Check{HTTP: "/healthz", Interval: 5 * time.Millisecond, Timeout: patience, Healthy: 1, Unhealthy: 1},
		registrar: fake, app: []string{app.start(t)}, log: slog.New(slog.DiscardHandler),
	}
	a.start()
	defer a.stop()
	eventually.Nil(t, "the registration", func() error {
		if !a.entered() {
			return errors.New("not registered")
		}
		return nil
	})
	a.yield()
	app.down.Store(true)
	for asked := app.asked.Load(); app.asked.Load() < asked+3; {
		time.Sleep(time.Millisecond)
	}
	if fake.withdrawn.Load() {
		t.Error("withdrawn, though it is a successor's")
	}
	a.resume()
	eventually.Nil(t, "the endpoint to be withdrawn", func() error {
		if !fake.withdrawn.Load() {
			return errors.New("announced")
		}
		return nil
	})
	app.down.Store(false)
	eventually.Nil(t, "the endpoint to be restored", func() error {
		if fake.withdrawn.Load() {
			return errors.New("withdrawn")
		}
		return nil
	})
}

// TestLeaveFirst: until the registry has confirmed that a sidecar is gone, it
// serves as if nothing was. A registry that fails does not keep it.
func TestLeaveFirst(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	s, egress := inProcess(t, "")
	defer s.stop()
	left := 0
	fake := &fakeRegistry{leaving: func(ctx context.Context) error {
		left++
		if _, bounded := ctx.Deadline(); !bounded {
			t.Error("leaving may take for ever")
		}
		client := http.Client{Transport: &http.Transport{DisableKeepAlives: false}}
		defer client.CloseIdleConnections()
		resp, err := client.Get("http://" + egress + "/")
		if err != nil {
			t.Errorf("a request while leaving: %v", err)
			return err
		}
		resp.Body.Close()
		if resp.StatusCode != 200 || resp.Close {
			t.Errorf("a request while leaving was answered %d, close %v", resp.StatusCode, resp.Close)
		}
		if p := s.admin.Phase(); p != admin.Draining {
			t.Errorf("phase %v while leaving", p)
		}
		return errors.New("the registry is away")
	}}
	s.announceTo(fake)
	s.startDrain()
	receive(t, "the drain", s.drained)
	if left != 1 {
		t.Errorf("left the registry %d times", left)
	}
	refused(t, egress)
}
