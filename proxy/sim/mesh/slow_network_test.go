package mesh

import "testing"

// TestSlowNetwork checks that an application may get a request after it is over if the
// request was on a slow network when the load ended, however long it is on its way.
func TestSlowNetwork(t *testing.T) {
	r := runScript(t, `
direct
providers 1
bandwidth 1000000/s
load 500/s for 100ms
large 50%
consumer timeout: 30ms
`)
	late := 0
	for _, request := range r.Requests {
		if request.Status == 504 {
			late++
		}
	}
	if late < len(r.Requests)/2 {
		t.Errorf("the network was not slow: %d of %d requests passed their deadline", late, len(r.Requests))
	}
}
