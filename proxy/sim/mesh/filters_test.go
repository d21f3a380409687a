package mesh

import "testing"

// TestSharedResponses checks the invariants with a cache and with collapsed requests, while callers
// leave, and sidecars and providers end.
func TestSharedResponses(t *testing.T) {
	for _, route := range []string{"collapse: true", "cache: {ttl: 20ms, stale: 20ms}", "cache: {ttl: 1ms, stale: 0s}, collapse: true"} {
		for _, more := range []string{"", "http2 callers\n", "direct\n"} {
			r := runScript(t, more+`
				consumers 2
				loops 2
				load 4000/s for 2s
				service 10ms sigma 0.5
				same 90%
				abandon 10%
				consumer timeout: 100ms
				consumer hedge: {mode: on, delay: 5ms, budget: 0.2}
				route `+route+`
				at 500ms kill provider 1 for 300ms
				at 1s stall provider 2 for 200ms
				at 1200ms kill consumer 1 for 100ms
				at 1500ms fail provider 3 for 100ms`)
			served := 0
			for _, n := range r.Served {
				served += n
			}
			if served == 0 || served > len(r.Requests)*3/4 {
				t.Errorf("%s, %q: %d requests of %d at the applications", route, more, served, len(r.Requests))
			}
		}
	}
}

// TestFilters checks the invariants with faults and copies on the way of every request, while
// callers leave and providers fail.
func TestFilters(t *testing.T) {
	for _, direct := range []string{"", "direct\n"} {
		r := runScript(t, direct+`
			consumers 2
			loops 2
			load 1000/s for 2s
			abandon 10%
			large 3%
			consumer timeout: 100ms
			consumer hedge: {mode: on, delay: 5ms, budget: 0.2}
			route fault: {delay: 10ms, delay_share: 0.5, abort: 503, abort_share: 0.1}
			route mirror: {service: compute, share: 0.5}
			at 500ms kill provider 1 for 300ms
			at 1s stall provider 2 for 200ms
			at 1500ms fail provider 3 for 100ms`)
		aborted := 0
		for _, q := range r.Requests {
			if q.Status == 503 {
				aborted++
			}
		}
		if n := len(r.Requests); n < 1500 || aborted < n/20 || aborted > n/3 {
			t.Errorf("%q: %d of %d requests were aborted", direct, aborted, n)
		}
	}
}
