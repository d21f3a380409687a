package trace

import (
	"encoding/binary"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/config"
)

// TestHeaders: the id of a request is that of the last header, and its trace that of the only traceparent, in any case.
func TestHeaders(t *testing.T) {
	for _, c := range []struct {
		headers string
		id      string
		at      int // of the traceparent; -1 means that there is no valid one
	}{
		{"", "", -1},
		{"X-Request-Id: a", "a", -1},
		{"x-request-id: a; a: b", "a", -1},
		{"x-request-id: a; X-REQUEST-ID: b", "b", -1},
		{"x-request-ids: a; request-id: b", "", -1},
		{"traceparent: " + valid, "", 0},
		{"a: b; TraceParent: " + valid + "; x-request-id: c", "c", 1},
		{"traceparent: " + valid + "; Traceparent: " + valid, "", -1},
		{"traceparent: " + valid + "-x", "", -1},
		{"traceparent: " + valid + "; transparent: b", "", 0},
		{"traceparents: " + valid + "; tracestate: " + valid, "", -1},
	} {
		var hs []protocol.Header
		for _, line := range strings.Split(c.headers, "; ") {
			if name, value, ok := strings.Cut(line, ": "); ok {
				hs = append(hs, protocol.Header{Name: []byte(name), Value: []byte(value)})
			}
		}
		if got := string(RequestIDOf(hs)); got != c.id {
			t.Errorf("%q has the id %q, want %q", c.headers, got, c.id)
		}
		of, at, ok := ContextOf(hs)
		id := string(IDOf(hs))
		if c.at < 0 {
			if ok || id != "" || of != (Context{}) {
				t.Errorf("%q has the trace %q", c.headers, id)
			}
			continue
		}
		if !ok || at != c.at || id != aTrace || of != context(t, aTrace, aSpan, 1) || !of.Sampled() {
			t.Errorf("%q has the trace %q in header %d", c.headers, id, at)
		}
	}
	for name, want := range map[string][2]bool{ // is of a context, and is its state
		"traceparent": {true, false}, "TraceParent": {true, false}, "tracestate": {true, true}, "TRACESTATE": {true, true}, "trace": {}, "traceparents": {},
	} {
		h := protocol.Header{Name: []byte(name)}
		if got := [2]bool{IsContext(h), IsState(h)}; got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

// TestSampler: a share of the requests is sampled if tracing is on. Ids are random, and never zero.
func TestSampler(t *testing.T) {
	const all = 10_000
	for _, share := range []float64{0, 0.25, 0.75, 1} {
		s := Sampler{Rand: *rand.NewPCG(1, 2)}
		s.Configure(&config.Tracing{Endpoint: "http://a.test", Sample: share})
		n := 0.0
		for range all {
			if s.Draw() {
				n++
			}
		}
		if !s.On || n < 0.95*share*all || n > 1.05*share*all {
			t.Errorf("%v of %d requests are sampled, want a share of %v", n, all, share)
		}
		if s.Configure(&config.Tracing{Sample: 1}); s.On {
			t.Error("tracing without a receiver is on")
		}
	}
	s := Sampler{Rand: *rand.NewPCG(1, 2)}
	seen := make(map[string]bool)
	for range 1000 {
		span, id := s.NewSpanID(), s.NewTraceID()
		for _, half := range [][]byte{span[:], id[:8], id[8:]} {
			if seen[string(half)] || binary.LittleEndian.Uint64(half) == 0 {
				t.Errorf("the ids %x and %x are not new, or zero", span, id)
			}
			seen[string(half)] = true
		}
	}
}

// TestNames: spans have the names of kinds and outcomes.
func TestNames(t *testing.T) {
	for name, got := range map[string]string{
		"primary": Primary.String(), "retry": Retry.String(), "hedge": Hedge.String(),
		"unknown": Unknown.String(), "won": Won.String(), "cancelled": Cancelled.String(), "failed": Failed.String(), "refused": Refused.String(),
	} {
		if got != name {
			t.Errorf("%s is called %s", name, got)
		}
	}
}
