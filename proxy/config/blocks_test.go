package config

import (
	"strings"
	"testing"
)

// TestBlocks: each route has blocks of its own, with the defaults of the keys that its file does not set. A route
// that comes from no file has empty ones.
func TestBlocks(t *testing.T) {
	c := mustParse(t, `{services: {s: {discover: static, endpoints: ["a:1"]}}, routes: [
{service: s, match: {path: /a}, fault: {abort: 503}, mirror: {share: 1}}, {service: s}]}`)
	a, b := &c.Routes[0], &c.Routes[1]
	for _, got := range []struct{ is, want Fault }{
		{*a.Fault(), Fault{Abort: 503, AbortShare: 1, DelayShare: 1}},
		{*b.Fault(), Fault{AbortShare: 1, DelayShare: 1}},
		{*new(Route).Fault(), Fault{}},
	} {
		if got.is != got.want {
			t.Errorf("got %+v, want %+v", got.is, got.want)
		}
	}
	if a.SameFilters(b) || !a.SameFilters(a) || !new(Route).SameFilters(&Route{}) {
		t.Error("routes are the same if their blocks are")
	}
	roundTrip(t, c)
	if text, err := c.YAML(); err != nil || !strings.Contains(string(text), "abort: 503") {
		t.Errorf("%v; the block is missing in\n%s", err, text)
	}
}
