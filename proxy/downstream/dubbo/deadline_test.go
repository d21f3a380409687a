package dubbo_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol/dubbo"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// withTimeout returns a call's body with one attachment more.
func withTimeout(serialization byte, body []byte, name, value string) []byte {
	if serialization == dubbo.Fastjson {
		return fmt.Appendf(nil, "%s,%q:%q}\n", bytes.TrimSuffix(body, []byte("}\n")), name, value)
	}
	return append(proxytest.HessianString(proxytest.HessianString(body[:len(body)-1], name), value), 'Z')
}

// TestCallTimeouts checks that the timeout in a call shortens the route's, and that the provider
// gets what is left after a queue.
func TestCallTimeouts(t *testing.T) {
	const used, pause = 300 * time.Millisecond, 10 * time.Millisecond
	proxytest.EachDubboPath(t, func(t *testing.T, direct bool) {
		for name, as := range proxytest.Serializations {
			for _, attachment := range []string{"timeout", "_TO"} {
				t.Run(name+" "+attachment, func(t *testing.T) {
					m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{OneHop: direct, Apps: 1, Service: "timeout: 5s, max_concurrency: 1", Provider: "max_concurrency: 1"})
					left, invocation := time.Duration(0), dubbo.Invocation{}
					m.Apps[0].OnCall = func(f *dubbo.Frame) {
						if err := invocation.Parse(f.Serialization, f.Body); err != nil {
							t.Errorf("the provider got %q: %v", f.Body, err)
						}
						left = invocation.Timeout
					}
					delay := used + pause
					m.Apps[0].Delay = func() time.Duration { return delay }
					body := as.Call(proxytest.DemoService, "1.0", "g", "echo", "x")
					timed := withTimeout(as.ID, as.Call(proxytest.DemoService, "1.0", "g", "echo", "x"), attachment, "2000")
					c := m.DialDubbo(proxytest.EgressDubbo)
					first := c.Call(as.ID, body)
					m.W.Run(pause)
					delay = time.Millisecond
					second := c.Call(as.ID, timed)
					c.CheckResult(first, dubbo.StatusOK, "")
					c.CheckResult(second, dubbo.StatusOK, string(proxytest.EchoCall(&dubbo.Frame{Serialization: as.ID, Body: timed}).Body))
					if left > 2*time.Second-used || left < 2*time.Second-used-4*pause {
						t.Errorf("the provider has %v", left)
					}

					delay = time.Hour
					for value, want := range map[string]time.Duration{"50": 50 * time.Millisecond, "999999999999": 5 * time.Second} {
						sent := m.W.Now()
						late := c.Call(as.ID, withTimeout(as.ID, as.Call(proxytest.DemoService, "1.0", "g", "echo", "x"), attachment, value))
						c.CheckResult(late, dubbo.StatusServerTimeout, "")
						if took := m.W.Now() - sent; took < want || took > want+used {
							t.Errorf("%s: the call ended after %v", value, took)
						}
					}
				})
			}
		}
	})
}

// TestConvertedTimeouts checks that an HTTP caller's timeout reaches the provider as attachments,
// and only such.
func TestConvertedTimeouts(t *testing.T) {
	for _, c := range []struct {
		service string
		headers []string
		want    time.Duration
	}{
		{"", nil, 0},
		{"", []string{"x-remora-timeout-ms: 2000", "dubbo-attachments: timeout=77777"}, 2 * time.Second},
		{"", []string{"grpc-timeout: 2S"}, 2 * time.Second},
		{"timeout_header: true", nil, 15 * time.Second},
	} {
		proxytest.EachDubboPath(t, func(t *testing.T, direct bool) {
			m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{OneHop: direct, Apps: 1, Service: c.service, Provider: c.service})
			var left time.Duration
			m.Apps[0].OnCall = func(f *dubbo.Frame) {
				var invocation dubbo.Invocation
				if err := invocation.Parse(f.Serialization, f.Body); err != nil {
					t.Errorf("the provider got %q: %v", f.Body, err)
				}
				left = invocation.Timeout
			}
			call := m.FormCall("echo", "x", c.headers...)
			m.Do(call)
			m.Finish(call)
			proxytest.Equal(t, "status", call.Status, 200)
			if left > c.want || left < c.want-25*time.Millisecond {
				t.Errorf("%v: the provider has %v", c.headers, left)
			}
			m.Settled()
		})
	}
}
