package config

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

// TestSplit: each service of a split has its own policy. The route's settings override
// it, and the share's settings override those. Printing and parsing keeps it.
func TestSplit(t *testing.T) {
	c := mustParse(t, `
routes:
- match: {path: /a}
  service: [{name: s, weight: 95}, {name: r, timeout: 1s}]
  retry: {on: [reset]}
services:
  s: {discover: static, endpoints: ["a:1"], timeout: 2s, hedge: {mode: on, min_delay: 3ms}, retry: {attempts: 2}}
  r: {discover: static, endpoints: ["a:1"], timeout: 4s, idempotent: true}
`)
	first, second := c.Services["s"].Policy.clone(), c.Services["r"].Policy.clone()
	first.Retry.On = []string{RetryReset}
	second.Retry.On = []string{RetryReset}
	second.Timeout = time.Second
	want := Route{
		Match: Match{Path: "/a"}, Service: "s", Allow: defaultAllow(), Fault: defaultFault(), Mirror: defaultMirror(), Policy: first,
		Split: []Share{{Name: "s", Weight: 95, Policy: first}, {Name: "r", Weight: 1, Policy: second}},
	}
	if got := c.Routes[0]; !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if on := c.Services["r"].Retry.On; len(on) != 3 {
		t.Errorf("the service's own policy changed: %v", on)
	}
	data, err := c.YAML()
	if err != nil {
		t.Fatal(err)
	}
	again := mustParse(t, string(data)).Routes[0]
	if !reflect.DeepEqual(again.Split, want.Split) || !reflect.DeepEqual(again.Policy, want.Policy) {
		t.Errorf("printed and parsed %+v\nwant %+v\n%s", again, want, data)
	}
}

// TestRoutePolicy checks that a route overrides only the settings that it has, even if
// its service follows it in the file.
func TestRoutePolicy(t *testing.T) {
	c := mustParse(t, `
routes:
- {match: {path: /a}, service: s, hedge: {max_delay: 9ms}}
- {match: {path: /b}, service: s, retry: {on: []}}
services:
  s: {discover: static, endpoints: ["a:1"], timeout: 2s, hedge: {mode: on, min_delay: 3ms}, retry: {attempts: 2}}
`)
	s := c.Services["s"].Policy
	a, b := s.clone(), s.clone()
	a.Hedge.MaxDelay = 9 * time.Millisecond
	b.Retry.On = []string{}
	if !reflect.DeepEqual(c.Routes[0].Policy, a) || !reflect.DeepEqual(c.Routes[1].Policy, b) {
		t.Errorf("got %+v and %+v, want %+v and %+v", c.Routes[0].Policy, c.Routes[1].Policy, a, b)
	}
	if s.Timeout != 2*time.Second || s.Hedge.MaxDelay != 50*time.Millisecond || len(s.Retry.On) != 3 {
		t.Errorf("the service's own policy changed: %+v", s)
	}
}

// The forecast of shadow mode, the default, needs no budget that hedging could work with: one for
// retries may be small.
func TestHedgeDefaultAnyBudget(t *testing.T) {
	for mode, valid := range map[string]bool{"": true, "mode: shadow, ": true, "mode: off, ": true, "mode: on, ": false} {
		text := `services: {s: {discover: static, endpoints: ["a:1"], hedge: {` + mode + `budget: 0.01}}}`
		c, err := Parse("a.yaml", []byte(text), func(string) (string, bool) { return "", false })
		if (err == nil) != valid {
			t.Errorf("%sbudget 0.01: %v", mode, err)
		}
		if mode == "" && c.Services["s"].Hedge.Mode != HedgeShadow {
			t.Errorf("mode %s is the default", c.Services["s"].Hedge.Mode)
		}
	}
}

// TestRetryCodes: retry.on may name codes of gRPC, spelled as everywhere.
func TestRetryCodes(t *testing.T) {
	const expected = "expected one of connect, refused, reset, 5xx, a status such as 503 or a code of gRPC such as unavailable, got "
	for on, want := range map[string]string{
		`[unavailable, resource-exhausted, "503"]`: "",
		`[` + strings.Join(GRPCErrors, ", ") + `]`: "",
		`[UNAVAILABLE]`:              `f:1:83: services.s.retry.on[0]: ` + expected + `"UNAVAILABLE"; did you mean unavailable?`,
		`[reset, deadline_exceeded]`: `f:1:90: services.s.retry.on[1]: ` + expected + `"deadline_exceeded"; did you mean deadline-exceeded?`,
		`[ok]`:                       `f:1:83: services.s.retry.on[0]: ` + expected + `"ok"`,
		`[unavailable, unavailable]`: `f:1:96: services.s.retry.on[1]: "unavailable" is listed twice`,
	} {
		text := `services: {s: {discover: static, endpoints: ["a:1"], protocol: http, retry: {on: ` + on + `}}}` + "\n" +
			`listeners: [{name: a, address: "127.0.0.1:1", protocol: http}]` + "\nroutes: [{service: s}]\n"
		_, err := Parse("f", []byte(text), func(string) (string, bool) { return "", false })
		if got := fmt.Sprint(err); (err == nil) != (want == "") || err != nil && got != want {
			t.Errorf("%s: %v, want %s", on, got, want)
		}
	}
}
