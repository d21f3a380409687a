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

// TestPausedConsumer checks that the deadline of a request that was sent while the sidecar was
// paused counts from the end of the pause, when the sidecar read it.
func TestPausedConsumer(t *testing.T) {
	r := runScript(t, `
direct
providers 1
threads 1
load 2000/s for 200ms
consumer timeout: 150ms
at 170ms pause consumer 1 for 20ms
`)
	late := 0
	for _, request := range r.Requests {
		if request.Status == 504 {
			late++
		}
	}
	if late == 0 {
		t.Error("no request passed its deadline")
	}
}
