package limits

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
)

// TestBatchBurst: a burst of large responses fills the network between two sidecars. A small
// response on the same link, which is ready last, arrives before nearly all of them if they are
// batch, and after them if they are online. The network is held up until all are ready.
func TestBatchBurst(t *testing.T) {
	const (
		parts = 400
		size  = 10 << 10 // fits one frame
	)
	before := map[string]int64{} // large responses that arrived before the small one
	for _, priority := range []string{"batch", "online"} {
		backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/large" {
				_, _ = w.Write(make([]byte, size))
			}
		}))
		p, ingress := harness.Provider(t, &harness.App{Addr: backend.Listener.Addr().String()})
		network := newNetwork(t, ingress)
		egress := harness.FreeAddrs(t, 1)[0]
		harness.Start(t, fmt.Sprintf(`
loops: 1
listeners: [{name: egress, address: %q, protocol: http}]
routes: [{service: app}]
services: {app: {discover: static, endpoints: [%q], protocol: link, connect_timeout: 15s, timeout: 2m}}
`, egress, network.addr)).Ready()

		fetch(t, "http://"+egress+"/small", priority) // opens the link
		network.open.Lock()
		var all sync.WaitGroup
		var arrived atomic.Int64
		for range parts {
			all.Go(func() {
				fetch(t, "http://"+egress+"/large", priority)
				arrived.Add(1)
			})
		}
		const ready = `remora_requests_total{outcome="2xx",service="local"}`
		p.AwaitMetric(ready, 1+parts)
		all.Go(func() {
			fetch(t, "http://"+egress+"/small", "online")
			before[priority] = arrived.Load()
		})
		p.AwaitMetric(ready, 1+parts+1)
		network.open.Unlock()
		all.Wait()
		backend.Close()
	}
	t.Logf("large responses of %d before the small one: %v", parts, before)
	if before["batch"] > parts/4 || before["online"] < parts/2 {
		t.Errorf("large responses of %d before the small one: %v; want few if they are batch, and most if they are online", parts, before)
	}
}

// fetch makes a request and reads its response.
func fetch(t *testing.T, url, priority string) {
	req, err := http.NewRequest("GET", url, nil)
	if err != nil {
		t.Error(err)
		return
	}
	req.Header.Set("x-remora-priority", priority)
	resp, err := (&http.Client{Timeout: harness.Patience, Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Error(resp, err)
		return
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
}

// network carries connections to an address. While open is locked it passes no responses, and
// holds little of them.
type network struct {
	addr string
	open sync.RWMutex
}

func newNetwork(t *testing.T, to string) *network {
	n := &network{}
	small := func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096) })
	}
	n.addr = harness.ServeTCP(t, func(from net.Conn) {
		onward, err := (&net.Dialer{Control: small}).Dial("tcp", to)
		if err != nil {
			return
		}
		go func() { _, _ = io.Copy(onward, from); onward.Close() }()
		n.back(from, onward)
	})
	return n
}

// back passes responses.
func (n *network) back(from io.Writer, onward io.Reader) {
	data := make([]byte, 4096)
	for {
		count, err := onward.Read(data)
		if err != nil {
			return
		}
		n.open.RLock()
		_, err = from.Write(data[:count])
		n.open.RUnlock()
		if err != nil {
			return
		}
	}
}
