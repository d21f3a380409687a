package byname_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

func TestMain(m *testing.M) { proxytest.Main(m) }

// TestRequestsByHost: each request takes a connection that proves its host. There is a bound of hosts whose connections are in use.
func TestRequestsByHost(t *testing.T) {
	const most = 64
	m, d := proxytest.DiallingMesh(t, 0, proxytest.MeshOptions{Apps: 1, OneHop: true, Service: "timeout: 10s, retry: {on: []}, tls: {ca: system, sni: host}"})
	m.Apps[0].Delay = func() time.Duration { return time.Second }
	send := func(host int) *proxytest.Call {
		c := m.Raw(fmt.Sprintf("GET / HTTP/1.1\r\nHost: h%d.test\r\n\r\n", host))
		c.Nonce = "" // and so is that of the response
		m.Do(c)
		m.W.Run(time.Millisecond)
		return c
	}
	var calls []*proxytest.Call
	for host := range most {
		calls = append(calls, send(host))
	}
	full := send(most)
	m.Finish(full)
	if full.Status != 503 || full.Code != "overloaded" {
		t.Errorf("one host more: status %d %s", full.Status, full.Code)
	}
	m.Finish(calls...)
	m.OK(calls...)
	again := send(7)
	m.Finish(again)
	m.OK(again)
	for i, r := range d.Receivers {
		if name, want := r.(loop.Named).ServerName(), fmt.Sprintf("h%d.test", i); name != want {
			t.Errorf("connection %d is to prove %q, want %q", i, name, want)
		}
	}
	if len(d.Receivers) != most {
		t.Errorf("%d connections to %d hosts", len(d.Receivers), most)
	}
	m.Settled()
}
