package mesh

import "testing"

// TestBusyCallersSendNoProbes checks that callers with 1,000 requests a second send none, though they share replicas with
// other callers.
func TestBusyCallersSendNoProbes(t *testing.T) {
	r := runScript(t, `
consumers 4
providers 10
threads 4
service 7ms sigma 0.5
load 4000/s for 2s
`)
	if r.Probes > 0 || len(r.Requests) < 7000 {
		t.Errorf("%d probes with %d requests", r.Probes, len(r.Requests))
	}
}
