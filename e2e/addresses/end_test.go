package addresses

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/must"
)

// TestAddressesEnd: each listener with port 0 has its own, and a reload that removes several closes all.
func TestAddressesEnd(t *testing.T) {
	t.Setenv("GOGC", "off") // which would close what nobody has closed
	a := harness.NewApp(t)
	kept := fmt.Sprintf(`{name: kept, address: %q, protocol: http, service: app}`, harness.FreeAddrs(t, 1)[0])
	config := func(listeners string) string {
		return fmt.Sprintf(`
listeners: [%s]
services: {app: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s}}`, listeners, a.Addr)
	}
	var any string
	for i := range 4 {
		any += fmt.Sprintf(`, {name: any%d, address: "127.0.0.1:0", protocol: http, service: app}`, i)
	}
	p := harness.Start(t, config(kept+any))
	p.Ready()
	p.AwaitLog("listener=any0", "listener=any1", "listener=any2", "listener=any3")
	found := regexp.MustCompile(`msg=listening listener=any\d address=(\S+)`).FindAllStringSubmatch(p.Output.String(), -1)
	p.Reload(config(kept), "applied")
	for _, at := range found {
		harness.Refused(t, at[1])
	}
}

// TestWideningEnds: a listener that takes over the socket at a part of its address gets all of its connections from
// then on, though the one that had it speaks another protocol or leads elsewhere.
func TestWideningEnds(t *testing.T) {
	apps := make([]string, 2)
	for i := range apps {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, i) }))
		defer s.Close()
		apps[i] = s.Listener.Addr().String()
	}
	_, port, _ := net.SplitHostPort(harness.FreeAddrs(t, 1)[0])
	config := func(listener string) string {
		return fmt.Sprintf(`
loops: 2
listeners: [%s]
services:
  before: {discover: static, endpoints: [%q], protocol: tcp, connect_timeout: 15s}
  after: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s}`, listener, apps[0], apps[1])
	}
	p := harness.Start(t, config(fmt.Sprintf(`{name: a, address: "127.0.0.1:%s", protocol: tcp, service: before}`, port)))
	p.Ready()
	p.Reload(config(fmt.Sprintf(`{name: b, address: "0.0.0.0:%s", protocol: http, service: after}`, port)), "applied")
	for range 40 {
		c := http.Client{Timeout: harness.Patience, Transport: &http.Transport{DisableKeepAlives: true}}
		_, b := must.Get(t, &c, "http://127.0.0.1:"+port+"/")
		if b != "1" {
			t.Fatalf("the listener of before got a connection: %q", b)
		}
	}
}
