package load

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/eventually"
)

// served returns the number of requests that a provider's application has responded to.
func served(p *harness.Process) (n int, err error) {
	_, body := p.Get("/metrics")
	found := regexp.MustCompile(`(?m)^remora_requests_total\{outcome="2xx",service="local"\} (\d+)$`).FindStringSubmatch(body)
	if found == nil {
		return 0, fmt.Errorf("no requests in %q", body)
	}
	return strconv.Atoi(found[1])
}

// TestDrainProviderUnderLoad: one of two providers drains while 20 clients send
// requests that must not be sent twice. None fails.
func TestDrainProviderUnderLoad(t *testing.T) {
	first, second := harness.NewApp(t), harness.NewApp(t)
	p1, addr1 := harness.Provider(t, first)
	p2, addr2 := harness.Provider(t, second)
	egress := harness.FreeAddrs(t, 1)[0]
	c := harness.Start(t, fmt.Sprintf(`
loops: 2
listeners: [{name: egress, address: %q, protocol: http}]
routes: [{service: compute}]
services: {compute: {discover: static, endpoints: [%q, %q], protocol: link, connect_timeout: 15s, timeout: 2m}}`, egress, addr1, addr2))
	p1.Ready()
	p2.Ready()
	c.Ready()

	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	var answered atomic.Int64
	for i := range 20 {
		clients.Go(func() {
			client := &http.Client{Transport: &http.Transport{}}
			defer client.CloseIdleConnections()
			for n := 0; ctx.Err() == nil; n++ {
				if err := harness.Post(client, egress, fmt.Sprintf("%d-%d", i, n)); err != nil {
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
	p1.Signal(syscall.SIGTERM)
	more("load during the drain", 500)
	p1.Ends()
	more("load after the drain", 500)
}
