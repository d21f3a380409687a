package dubbo_test

import (
	"fmt"
	"testing"

	"github.com/remora-proxy/remora/protocol/dubbo"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// TestAffinityOfInterface checks that the calls of an interface go to one application, whatever the
// method.
func TestAffinityOfInterface(t *testing.T) {
	proxytest.EachDubboPath(t, func(t *testing.T, direct bool) {
		m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 5, OneHop: direct, Service: "lb: {policy: consistent_hash, hash: {path: true}}"})
		c := m.DialDubbo(proxytest.EgressDubbo)
		by := -1
		for i, a := range m.Apps {
			a.OnCall = func(*dubbo.Frame) { by = i }
		}
		owners := map[int]bool{}
		for n := range 10 {
			owner := -1
			for _, method := range []string{"a", "b", "c"} {
				c.CheckResult(c.Call(dubbo.Hessian2, proxytest.HessianCall(fmt.Sprint("com.acme.I", n), "", "", method, "x")), dubbo.StatusOK, "")
				if owner < 0 {
					owner = by
				}
				if by != owner {
					t.Errorf("interface %d: method %s went to %d, the first to %d", n, method, by, owner)
				}
			}
			owners[owner] = true
		}
		if len(owners) < 2 {
			t.Errorf("all interfaces are at %v", owners)
		}
		m.Settled()
	})
}
