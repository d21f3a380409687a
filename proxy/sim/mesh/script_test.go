package mesh

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/must"
)

// TestSpecRoundTrip checks that the script of a Spec reads as the same Spec.
func TestSpecRoundTrip(t *testing.T) {
	for seed := range uint64(500) {
		want := Random(seed)
		sc, err := Parse("x.scenario", "title x\n"+want.String())
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, want.String())
		}
		if got := sc.Full.Spec; !reflect.DeepEqual(got, want) {
			t.Fatalf("seed %d: got\n%s\nwant\n%s", seed, got.String(), want.String())
		}
	}
}

// TestRunIsRepeatable checks that a Spec gives the same run each time, read from a script
// or not.
func TestRunIsRepeatable(t *testing.T) {
	for seed := range uint64(20) {
		spec := Random(seed)
		sc, err := Parse("x.scenario", "title x\n"+spec.String())
		if err != nil {
			t.Fatal(err)
		}
		if a, b := Run(spec), Run(sc.Full.Spec); a.Hash != b.Hash || !reflect.DeepEqual(a, b) {
			t.Errorf("seed %d: two runs differ", seed)
		}
	}
}

func TestScript(t *testing.T) {
	sc, err := Parse("dir/two words.scenario", `
# a comment
title what it is   # another
consumers 2
load 500/s for 3s
small load 50/s for 1s
versus weights 1 2 3
consumer hedge: {mode: on, delay: 5ms}
at 1s partition provider 2 -> consumers for 20ms
every 1s from 500ms stall providers for 50ms
at 2s load x10
expect p99 from 1s to 2s < 6ms
expect gate.budget == 0
expect answered >= 99% of versus
`)
	if err != nil {
		t.Fatal(err)
	}
	if sc.Name != "two words" || sc.Title != "what it is" || sc.Full.Spec.Consumers != 2 ||
		sc.Full.Spec.Load != 500 || sc.Small.Spec.Duration != time.Second || sc.Full.Spec.Weights != nil ||
		len(sc.Full.Versus.Weights) != 3 || sc.Small.Versus.Load != 50 {
		t.Errorf("read as %+v", sc)
	}
	want := []Event{
		{At: time.Second, Action: PartitionFrom, Target: Target{TargetProvider, 2}, For: 20 * time.Millisecond},
		{At: 500 * time.Millisecond, Every: time.Second, Action: Stall, Target: Target{Kind: TargetProvider}, For: 50 * time.Millisecond},
		{At: 2 * time.Second, Action: LoadBy, Factor: 10},
	}
	if !reflect.DeepEqual(sc.Full.Spec.Events, want) {
		t.Errorf("events %v, want %v", sc.Full.Spec.Events, want)
	}
	r := &Result{Requests: []Request{
		{Sent: 0, Took: time.Second, Status: 200},
		{Sent: 1500 * time.Millisecond, Took: 6 * time.Millisecond, Status: 200},
		{Sent: 1600 * time.Millisecond, Took: time.Second, Status: 503},
	}}
	versus := &Result{Requests: r.Requests[:2]}
	for i, holds := range []bool{false, true, true} {
		if o := sc.Judge(r, versus)[i]; o.Holds != holds {
			t.Errorf("line %d: holds %v, want %v; %s", o.Expect.Line, o.Holds, holds, o.Summary)
		}
	}
}

// TestScriptErrors checks that each mistake is an error that names its line.
func TestScriptErrors(t *testing.T) {
	for text, want := range map[string]string{
		"consumer 3":                            "x:2: consumer needs a key",
		"consumers":                             "x:2: missing the number of consumers",
		"consumers many":                        `x:2: "many" is not the number of consumers`,
		"consumers 0":                           "x:2:",
		"consumers 1 2":                         `x:2: unexpected "2"`,
		"hosts 3":                               `x:2: no statement begins with "hosts"`,
		"service 1ms":                           `x:2: missing "sigma"`,
		"load 5 for 1s":                         `x:2: "5" is not a rate`,
		"abandon 5":                             `x:2: "5" is not a share`,
		"stalls every -1s for 1s":               `x:2: "-1s" is not the mean time`,
		"consumer hedge: {mode: maybe}":         "x:2: the configuration is wrong",
		"consumer hedges: {mode: on}":           "x:2: the configuration is wrong",
		"at 1s explode provider 1":              `x:2: unknown action "explode provider 1"`,
		"at 1s kill provider 0":                 "x:2:",
		"at 1s kill provider 9":                 "there is no provider 9",
		"at 1s drain consumer 1":                `x:2: unknown action "drain consumer 1"`,
		"at 1s stall provider 1":                `x:2: missing "for"`,
		"at 1s load x10 for ever":               `x:2: "ever" is not`,
		"at 1s load 10":                         `x:2: "10" is not a factor`,
		"at soon etcd down":                     `x:2: "soon" is not the time`,
		"every 0s etcd down":                    "x:2: events need time",
		"expect p98 < 1ms":                      `x:2: unknown measure "p98"`,
		"expect gate.open == 0":                 `x:2: unknown measure`,
		"expect p99 about 1ms":                  `x:2: "about" is no relation`,
		"expect p99 < 1":                        `x:2: "1" is not the value, a duration`,
		"expect p99 < 1ms or":                   `x:2: unexpected "or"`,
		"expect p99 <= 1 of versus":             `x:2: "1" is not a share`,
		"expect p99 <= 90% of versus":           "x:2: there is nothing to compare with",
		"expect p99 from 2s to 1s < 1ms":        "x:2: the period ends",
		"versus hosts 3":                        `x:2: no statement begins with "hosts"`,
		"small load 1/s for 1s\nsmall queue -1": `x:3: "-1" is not`,
		"warmup 2s":                             "warm-up",
	} {
		_, err := Parse("x", "title t\n"+text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want one with %q", text, err, want)
		}
	}
	if _, err := Parse("x", "consumers 1"); err == nil {
		t.Error("no error for a scenario without a title")
	}
}

// TestDocumentedScript checks that the script in the README of testdata is valid.
func TestDocumentedScript(t *testing.T) {
	page := must.ReadFile(t, "../testdata/README.md")
	_, script, _ := strings.Cut(string(page), "```\n# Comments")
	script, _, _ = strings.Cut(script, "```")
	sc, err := Parse("README.md", "#"+script)
	if err != nil {
		t.Fatal(err)
	}
	if len(sc.Expects) != 3 {
		t.Errorf("got expectations %v, want 3", sc.Expects)
	}
}
