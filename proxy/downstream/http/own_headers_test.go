package http_test

import (
	"strings"
	"testing"

	"github.com/remora-proxy/remora/proxy/proxytest"
)

// TestForgedError checks that an application can't say x-remora-error, or anything else in the
// name of a sidecar, while the codes of both sidecars reach the client.
func TestForgedError(t *testing.T) {
	proxytest.EachTopology(t, proxytest.MeshOptions{Apps: 1}, func(t *testing.T, m *proxytest.Mesh) {
		m.Apps[0].ExtraHeaders = "x-remora-error: no-route\r\nX-REMORA-Anything: 1\r\nx-remora: kept\r\ndate: today\r\n"
		call := m.Get("/")
		m.Do(call)
		m.OK(call)
		var lines []string
		for _, h := range call.Headers {
			if name := strings.ToLower(string(h.Name)); strings.HasPrefix(name, "x-remora") || name == "date" {
				lines = append(lines, name+": "+string(h.Value))
			}
		}
		proxytest.Equal(t, "the client's headers", strings.Join(lines, ", "), "x-remora: kept, date: today")

		m.Apps[0].Stop()
		m.Apps[0].ResetAll = true
		failed := m.Get("/")
		m.Do(failed)
		m.Finish(failed)
		proxytest.Equal(t, "the code of a lost connection", failed.Code, "upstream-reset")
	})
}
