package streams

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/remora-proxy/remora/e2e/harness"
	openloop "github.com/remora-proxy/remora/lab/load"
	"github.com/remora-proxy/remora/lab/replica"
)

// A link that sent one message after the other would delay a small request for about as
// long as a large one takes. Shared frame by frame, it delays it for a few frames of
// 16 KiB. Both run at the same time on the same machine, so their ratio hardly depends
// on it: it is about 9. A machine that stands still for a while delays both, so the best
// of some tries counts.
const (
	largeTries   = 3
	smallToLarge = 1.5 // the P50 of large requests is at least so many times that of small ones
	slowestSmall = 5 * time.Second
	fewestBodies = 20
)

// TestSmallRequestsBesideLargeBodies sends 4 MiB bodies and small requests on one link.
func TestSmallRequestsBesideLargeBodies(t *testing.T) {
	app, err := replica.Start(replica.Options{Mode: replica.Fast})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = app.Close(context.Background()) })
	ingress := harness.FreeAddrs(t, 1)[0]
	// One loop on each side, so that there is one link.
	harness.Start(t, fmt.Sprintf(`
loops: 1
listeners: [{name: ingress, address: %q, protocol: link, service: local}]
services: {local: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 10s}}`, ingress, app.Addr())).Ready()
	egress := harness.FreeAddrs(t, 1)[0]
	harness.Start(t, fmt.Sprintf(`
loops: 1
listeners: [{name: egress, address: %q, protocol: http}]
routes: [{service: big}]
services: {big: {discover: static, endpoints: [%q], protocol: link, connect_timeout: 10s}}`, egress, ingress)).Ready()

	run := func(o openloop.Options) *openloop.Result {
		o.Targets, o.Timeout, o.Connections = []string{"http://" + egress + "/echo"}, harness.Patience, 4
		r, err := openloop.Run(t.Context(), o)
		if err != nil {
			t.Error(err)
			return nil
		}
		if r.Counts.Failed() > 0 || r.Counts.Statuses[200] != r.Counts.Requests {
			t.Errorf("requests failed: %+v", r.Counts)
		}
		return r
	}
	for range largeTries {
		large := make(chan *openloop.Result, 1)
		go func() {
			large <- run(openloop.Options{Closed: true, Requests: fewestBodies, Duration: 4 * time.Second, Body: make([]byte, 4<<20)})
		}()
		small := run(openloop.Options{Rate: 200, Warmup: time.Second, Duration: 2 * time.Second})
		bodies := harness.Receive(t, "the large bodies", large)
		if small == nil || bodies == nil {
			return
		}
		t.Logf("small: P50 %v, P99 %v; %d bodies: P50 %v", small.Quantile(0.5), small.Quantile(0.99), bodies.Counts.Requests, bodies.Quantile(0.5))
		if bodies.Counts.Requests < fewestBodies {
			t.Errorf("%d bodies", bodies.Counts.Requests)
		}
		if float64(small.Quantile(0.5))*smallToLarge <= float64(bodies.Quantile(0.5)) && small.Quantile(0.99) <= slowestSmall {
			return
		}
	}
	t.Error("large requests delay small ones")
}
