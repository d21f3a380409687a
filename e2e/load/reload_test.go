package load

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/eventually"
)

// scripts/reload.sh sets these.
var (
	reloads    = flag.Int("reloads", 24, "reloads under load")
	reloadRate = flag.Int("reload-rate", 300, "requests a second meanwhile")
)

// openLoad sends requests at a constant rate, independent of their responses. Half of
// them go to an address that changes. On a machine too busy for the rate, it sends fewer:
// at most maxInFlight are in flight.
type openLoad struct {
	egress string
	moving atomic.Pointer[[]string] // where it may be, the most likely first
	client http.Client
	slots  chan struct{} // holds one value for each request in flight

	sent, answered, failed atomic.Int64
	mu                     sync.Mutex
	failures               []string // the first ones

	stop func()
	all  sync.WaitGroup
}

// maxInFlight is half of the default max_pending, which the provider has. After a pause of
// the machine, an unlimited load would exceed that, and be refused as it should be.
const maxInFlight = 512

// movingHost stands for the address that changes.
const movingHost = "moving.test:80"

func startLoad(egress, moving string, rate int) *openLoad {
	l := &openLoad{egress: egress, slots: make(chan struct{}, maxInFlight)}
	l.moving.Store(&[]string{moving})
	l.client = http.Client{Timeout: harness.Patience, Transport: &http.Transport{
		DialContext: l.dial, MaxIdleConnsPerHost: 64, IdleConnTimeout: 2 * time.Second, Proxy: nil, // the sidecar closes idle ones later
	}}
	ctx, stop := context.WithCancel(context.Background())
	l.stop = stop
	l.all.Go(func() { l.run(ctx, rate) })
	return l
}

func (l *openLoad) dial(ctx context.Context, network, addr string) (c net.Conn, err error) {
	addrs := []string{addr}
	if addr == movingHost {
		places := *l.moving.Load()
		addrs = append(slices.Clone(places), places[0]) // between two dials the listener may have moved to the first
	}
	for _, addr := range addrs {
		var d net.Dialer
		if c, err = d.DialContext(ctx, network, addr); err == nil {
			return c, nil
		}
	}
	return nil, err
}

// run sends the requests that are due, also those of a time in which it was not
// scheduled. It leaves out those for which there is no slot.
func (l *openLoad) run(ctx context.Context, rate int) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for began, next := time.Now(), int64(0); ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		due := int64(time.Since(began) * time.Duration(rate) / time.Second)
		for ; next < due; next++ {
			select {
			case l.slots <- struct{}{}:
				n := l.sent.Add(1)
				l.all.Go(func() { l.send(n) })
			default:
			}
		}
	}
}

func (l *openLoad) send(n int64) {
	defer func() { <-l.slots }()
	host := l.egress
	if n%2 == 1 {
		host = movingHost
	}
	if err := harness.Post(&l.client, host, fmt.Sprint("n", n)); err != nil {
		l.failed.Add(1)
		l.mu.Lock()
		defer l.mu.Unlock()
		if len(l.failures) < 5 {
			l.failures = append(l.failures, err.Error())
		}
		return
	}
	l.answered.Add(1)
}

// end stops the load and waits for the requests in flight.
func (l *openLoad) end() {
	l.stop()
	l.all.Wait()
	l.client.CloseIdleConnections()
}

// TestReloadUnderOpenLoad changes routes, services, limits, hedging and a listener's
// address under constant load. Some of the files are invalid. No request fails.
func TestReloadUnderOpenLoad(t *testing.T) {
	first, second := harness.NewApp(t), harness.NewApp(t)
	ingress, linked := harness.Provider(t, second)
	addrs := harness.FreeAddrs(t, 3)
	egress, places := addrs[0], addrs[1:]
	yaml := func(i int) string {
		const common = `connect_timeout: 15s, timeout: 2m, max_pending: 60000, max_queue: 60000`
		near := fmt.Sprintf(`near: {discover: static, endpoints: [%q], protocol: http, %s}`, first.Addr, common)
		variants := []struct{ routes, services string }{
			{`{service: near}`, near},
			{`{service: [{name: near}, {name: far}]}`, near + fmt.Sprintf(
				`, far: {discover: static, endpoints: [%q], protocol: link, %s, hedge: {mode: on, delay: 20ms}}`, linked, common)},
			{`{match: {path: /none}, service: near}, {service: far, idempotent: true, timeout: 90s}`, near + fmt.Sprintf(
				`, far: {discover: static, endpoints: [%q], protocol: link, %s, lb: {policy: random}}`, linked, common)},
			{`{service: far}`, fmt.Sprintf(`far: {discover: static, endpoints: [%q], protocol: link, %s, max_concurrency: 500}`, linked, common)},
			{`{service: near}`, fmt.Sprintf(
				`near: {discover: static, endpoints: [%q, %q], protocol: http, %s, outlier: {consecutive: 9}, breaker: {consecutive: 50}}`,
				first.Addr, second.Addr, common)},
		}
		v := variants[i%len(variants)]
		return fmt.Sprintf(`
loops: 2
listeners:
  - {name: egress, address: %q, protocol: http, rate_limit: {rate: %d}}
  - {name: moving, address: %q, protocol: http}
routes: [%s]
services: {%s}
limits: {message: %dMiB}
timeouts: {idle: %dm}`, egress, 100000+i, places[i%2], v.routes, v.services, 1+i%4, 5+i)
	}
	p := harness.Start(t, yaml(0))
	ingress.Ready()
	p.Ready()

	load := startLoad(egress, places[0], *reloadRate)
	defer load.end()
	refusals := 0
	for i := 1; i <= *reloads; i++ {
		if i%5 == 0 {
			p.Reload(strings.Replace(yaml(i), "routes:", "rutes:", 1), "invalid")
			refusals++
		}
		load.moving.Store(&[]string{places[i%2], places[(i+1)%2]})
		sent := load.sent.Load()
		p.Reload(yaml(i), "applied")
		harness.Refused(t, places[(i+1)%2]) // the old address is closed
		eventually.Nil(t, "load between reloads", func() error {
			if load.sent.Load() < sent+int64(*reloadRate)/20 {
				return fmt.Errorf("%d sent", load.sent.Load()-sent)
			}
			return nil
		})
	}
	load.end()
	t.Logf("%d reloads applied and %d refused at %d requests/s: %d sent, %d with a response, %d failed",
		*reloads, refusals, *reloadRate, load.sent.Load(), load.answered.Load(), load.failed.Load())
	for _, f := range load.failures {
		t.Error(f)
	}
	if load.failed.Load() > 0 || load.answered.Load() != load.sent.Load() {
		t.Error("requests have failed")
	}
	if n := p.Metric("remora_config_generation"); n != *reloads+1 {
		t.Errorf("generation %d after %d reloads", n, *reloads)
	}
}
