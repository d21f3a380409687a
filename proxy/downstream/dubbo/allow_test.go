package dubbo_test

import (
	"testing"

	"github.com/remora-proxy/remora/protocol/dubbo"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// TestNotAllowed checks that a call which no rule allows is refused as by a filter of Dubbo, by
// the consumer's sidecar and by the provider's.
func TestNotAllowed(t *testing.T) {
	rules := `allow: {rules: [{method: [m], service: [` + proxytest.DemoService + `]}]}`
	for name, o := range map[string]proxytest.DubboOptions{
		"consumer": {Apps: 1, Service: rules},
		"provider": {Apps: 1, Provider: rules},
	} {
		t.Run(name, func(t *testing.T) {
			m := proxytest.NewDubboMesh(t, o)
			c := m.DialDubbo(proxytest.EgressDubbo)
			c.CheckResult(c.CallHessian("m", "x"), dubbo.StatusOK, "")
			call := func(service, method string) []byte { return proxytest.HessianCall(service, "", "", method, "x") }
			c.CheckRefused(7, proxytest.CallFrame(7, dubbo.Hessian2, call(proxytest.DemoService, "other")), dubbo.StatusServiceError, "not-allowed")
			c.CheckRefused(8, proxytest.CallFrame(8, dubbo.Hessian2, call(proxytest.DemoService, "$invoke")), dubbo.StatusServiceError, "not-allowed")
			c.CheckRefused(9, proxytest.CallFrame(9, dubbo.Hessian2, call("com.example.Other", "m")), dubbo.StatusServiceError, "not-allowed")
			m.Settled()
		})
	}
}
