package dubbo

import (
	"fmt"
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/protocol/dubbo"
)

// TestDubboOneWay: a one-way call reaches its provider as such. Its caller gets no
// response, though the provider sends one.
func TestDubboOneWay(t *testing.T) {
	ln := must.Listen(t)
	calls := harness.FreeAddrs(t, 1)[0]
	harness.Start(t, fmt.Sprintf(`
loops: 1
listeners: [{name: dubbo, address: %q, protocol: dubbo, service: demo}]
services: {demo: {discover: static, endpoints: [%q], protocol: dubbo, connect_timeout: 15s, timeout: 2m}}`, calls, ln.Addr())).Ready()

	consumer := dialDubbo(t, calls)
	oneWay := &dubbo.Frame{Request: true, Serialization: dubbo.Hessian2, ID: 1, Body: harness.HessianCall("note", "one-way")}
	must.Write(t, consumer, dubbo.AppendFrame(nil, oneWay))
	sendCall(t, consumer, 2, "note", "two-way")

	provider, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer provider.Close()
	twoWay := map[string]bool{}
	for in := []byte(nil); len(twoWay) < 2; {
		frames, err := harness.ReadFrames(provider, &in)
		if err != nil {
			t.Fatal(err)
		}
		for i := range frames {
			response := echoed(&frames[i])
			twoWay[string(response.Body[2:])] = frames[i].TwoWay
			must.Write(t, provider, dubbo.AppendFrame(nil, response))
		}
	}
	if len(twoWay) != 2 || twoWay["one-way"] || !twoWay["two-way"] {
		t.Errorf("the provider gets two-way calls %v", twoWay)
	}
	var in []byte
	frames, err := harness.ReadFrames(consumer, &in)
	if err != nil || frames[0].ID != 2 {
		t.Errorf("the first response is %+v, %v", frames, err)
	}
}
