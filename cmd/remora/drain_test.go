package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/remora-proxy/remora/proxy/admin"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/registry"
)

// fakeRegistry is a registrar and the handle of its one registration.
type fakeRegistry struct {
	withdrawn atomic.Bool
	leaving   func(ctx context.Context) error
}

func (f *fakeRegistry) Register(registry.Registration) registry.Handle { return f }
func (f *fakeRegistry) Withdraw()                                      { f.withdrawn.Store(true) }
func (f *fakeRegistry) Restore()                                       { f.withdrawn.Store(false) }
func (f *fakeRegistry) Close(ctx context.Context) error                { return f.leaving(ctx) }
func (f *fakeRegistry) State() registry.State                          { return registry.Registered }
func (f *fakeRegistry) Err() error                                     { return nil }

// TestLeaveFirst: until the registry has confirmed that a sidecar is gone, it
// serves as if nothing was. A registry that fails does not keep it.
func TestLeaveFirst(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	a := newApp(t)
	egress := freeAddrs(t, 1)[0]
	cfg, err := config.Parse("test.yaml", []byte(fmt.Sprintf(`
admin: {address: ""}
listeners: [{name: egress, address: %q, protocol: http, service: app}]
services: {app: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s, timeout: 2m}}`, egress, a.addr)), nil)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	s, err := start(cfg, log, new(slog.LevelVar))
	if err != nil {
		t.Fatal(err)
	}
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
	entry := &announcement{registrar: fake, log: log}
	entry.start()
	s.announcements = []*announcement{entry}
	s.startDrain()
	receive(t, "the drain", s.drained)
	if left != 1 {
		t.Errorf("left the registry %d times", left)
	}
	refused(t, egress)
}
