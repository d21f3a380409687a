package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/lab"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/registry"
	"github.com/remora-proxy/remora/registry/etcd"
)

// provider starts the sidecar of an application, and returns the address of its link.
func provider(t *testing.T, a *app) (*process, string) {
	ingress := freeAddrs(t, 1)[0]
	p := startRemora(t, fmt.Sprintf(`
loops: 2
listeners: [{name: ingress, address: %q, protocol: link, service: local}]
services: {local: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s, timeout: 2m}}`, ingress, a.addr))
	p.ready() // it has its addresses before the test looks for other free ones
	return p, ingress
}

// served returns the number of requests that a provider's application has responded to.
func served(p *process) (n int, err error) {
	_, body := p.get("/metrics")
	found := regexp.MustCompile(`(?m)^remora_requests_total\{outcome="2xx",service="local"\} (\d+)$`).FindStringSubmatch(body)
	if found == nil {
		return 0, fmt.Errorf("no requests in %q", body)
	}
	return strconv.Atoi(found[1])
}

// TestDrainProviderUnderLoad: one of two providers drains while 20 clients send
// requests that must not be sent twice. None fails.
func TestDrainProviderUnderLoad(t *testing.T) {
	first, second := newApp(t), newApp(t)
	p1, addr1 := provider(t, first)
	p2, addr2 := provider(t, second)
	egress := freeAddrs(t, 1)[0]
	c := startRemora(t, fmt.Sprintf(`
loops: 2
listeners: [{name: egress, address: %q, protocol: http}]
routes: [{service: compute}]
services: {compute: {discover: static, endpoints: [%q, %q], protocol: link, connect_timeout: 15s, timeout: 2m}}`, egress, addr1, addr2))
	p1.ready()
	p2.ready()
	c.ready()

	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	var answered atomic.Int64
	for i := range 20 {
		clients.Go(func() {
			client := &http.Client{Transport: &http.Transport{}}
			defer client.CloseIdleConnections()
			for n := 0; ctx.Err() == nil; n++ {
				if err := post(client, egress, fmt.Sprintf("%d-%d", i, n)); err != nil {
					t.Error(err)
					return
				}
				answered.Add(1)
			}
		})
	}
	defer clients.Wait()
	defer stop()
	more := func(what string, n int64) {
		t.Helper()
		goal := answered.Load() + n
		eventually.Nil(t, what, func() error {
			if got := answered.Load(); got < goal {
				return fmt.Errorf("%d of %d", got, goal)
			}
			return nil
		})
	}
	more("load before the drain", 500)
	if n, err := served(p1); n == 0 {
		t.Errorf("the draining provider has served no request: %v", err)
	}
	p1.signal(syscall.SIGTERM)
	more("load during the drain", 500)
	if code := p1.exitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	more("load after the drain", 500)
}

// post sends a request with a unique body, which net/http does not retry by itself.
func post(client *http.Client, egress, text string) error {
	resp, err := client.Post("http://"+egress+"/", "text/plain", bytes.NewReader([]byte(text)))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != 200 || string(body) != "POST "+text {
		return fmt.Errorf("request %s: response %d %s %q", text, resp.StatusCode, resp.Header.Get("x-remora-error"), body)
	}
	return nil
}

// TestRegistration: an endpoint is in etcd only while its application is healthy and its
// sidecar does not drain.
func TestRegistration(t *testing.T) {
	t.Parallel() // it mostly waits
	e, err := lab.StartEtcd(lab.EtcdOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	watcher, err := etcd.New(etcd.Options{Endpoints: []string{e.Addr()}, Grace: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Close()
	snapshots := make(chan *registry.Snapshot, 64)
	watcher.Watch("compute", func(s *registry.Snapshot) { snapshots <- s })
	await := func(what string, n int) registry.Endpoint {
		t.Helper()
		for {
			s := receive(t, what, snapshots)
			if len(s.Endpoints) != n {
				continue
			}
			if n == 0 {
				return registry.Endpoint{}
			}
			return s.Endpoints[0]
		}
	}
	await("an empty snapshot", 0)

	a := newApp(t)
	sick := &checkedApp{app: "http://" + a.addr}
	checked := sick.start(t)
	ingress := freeAddrs(t, 1)[0]
	sick.down.Store(true)
	p := startRemora(t, fmt.Sprintf(`
node: {id: n1, zone: z1}
registry: {etcd: {endpoints: [%q], lease_ttl: 600s}}
listeners: [{name: ingress, address: %q, protocol: link, service: local}]
services: {local: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s, timeout: 2m}}
register: [{service: compute, listener: ingress, advertise: %q, weight: 3, check: {http: /healthz, interval: 200ms}}]`,
		e.Addr(), ingress, checked, ingress))
	p.ready()
	seen := sick.checks.Load()
	eventually.Nil(t, "some checks", func() error {
		if sick.checks.Load() < seen+3 {
			return fmt.Errorf("%d checks", sick.checks.Load())
		}
		return nil
	})
	eventually.Nil(t, "/endpoints to tell of the failed checks", func() error {
		_, body := p.get("/endpoints")
		if !regexp.MustCompile(`"state": "checking",\s*"error": ".*503`).MatchString(body) {
			return errors.New(body)
		}
		return nil
	})
	select {
	case s := <-snapshots:
		t.Errorf("registered before the check has succeeded: %+v", s)
	default:
	}

	sick.down.Store(false)
	got := await("the registration", 1)
	want := registry.Endpoint{Addr: ingress, Weight: 3, Zone: "z1", Protocol: "link", Node: "n1"}
	if got != want {
		t.Errorf("registered %+v, want %+v", got, want)
	}
	sick.down.Store(true)
	await("the withdrawal", 0)
	sick.down.Store(false)
	await("the return", 1)
	p.signal(syscall.SIGTERM)
	// The lease lasts for minutes, so it was the drain that removed the key.
	await("the end", 0)
	if code := p.exitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestMaxWeight: picks use the highest weights that the configuration allows for an
// endpoint and a registration.
func TestMaxWeight(t *testing.T) {
	e, err := lab.StartEtcd(lab.EtcdOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	a := newApp(t)
	ingress := freeAddrs(t, 1)[0]
	yaml := func(weight int) string {
		return fmt.Sprintf(`
registry: {etcd: {endpoints: [%q], lease_ttl: 600s}}
listeners: [{name: ingress, address: %q, protocol: link, service: local}]
services:
  local: {discover: static, endpoints: [{address: %q, weight: %[4]d}], protocol: http}
  compute: {}
register: [{service: compute, listener: ingress, advertise: %[2]q, weight: %[4]d}]`, e.Addr(), ingress, a.addr, weight)
	}
	p := startRemora(t, yaml(registry.MaxWeight))
	p.ready()
	eventually.Nil(t, "both weights in /endpoints", func() error {
		_, body := p.get("/endpoints")
		if strings.Count(body, fmt.Sprintf(`"weight": %d`, registry.MaxWeight)) != 2 {
			return errors.New(body)
		}
		return nil
	})
	_, err = config.Parse("heavier", []byte(yaml(registry.MaxWeight+1)), os.LookupEnv)
	if n := strings.Count(fmt.Sprint(err), "weight: expected at most"); n != 2 {
		t.Errorf("%d of 2 greater weights are refused: %v", n, err)
	}
}
