package bench

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/lab/load"
	"github.com/remora-proxy/remora/lab/steal"
)

const wrkOutput = `Running 3s test @ http://127.0.0.1:20001/compute
  1 threads and 64 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     1.45ms  300.00us   9.00ms   90.00%
Requests/sec:  40000.00
Transfer/sec:     10.00MB
RESULT {"requests":120000,"seconds":3.000100,"errors":2,"figures":{"p50_us":1400.0,"p99_us":2600.5,"p999_us":4000.0,"max_us":9000.0}}
`

func TestParseWrk(t *testing.T) {
	r, err := parseWrk([]byte(wrkOutput))
	if want := (Result{Requests: 120000, Errors: 2, Seconds: 3.0001, Figures: Figures{P50: 1400, P99: 2600.5, P999: 4000, Max: 9000}}); err != nil || !reflect.DeepEqual(*r, want) {
		t.Errorf("%+v, %v", r, err)
	}
	for _, bad := range []string{"", "unable to connect", "RESULT {", "RESULT {\"requests\":\"many\"}"} {
		if _, err := parseWrk([]byte(bad)); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

// TestRunWrk checks that wrk gets a script, whole seconds, the URL, and what differs from POSTs of
// 300 bytes.
func TestRunWrk(t *testing.T) {
	dir := t.TempDir()
	wrk := filepath.Join(dir, "program")
	script := "#!/bin/sh\nfor script; do [ \"$last\" = -s ] && break; last=$script; done\n" +
		"test -r $(dirname $script)/result.lua && echo \"$@\" >" + dir + "/args && echo '" +
		strings.TrimSpace(wrkOutput[strings.Index(wrkOutput, "RESULT"):]) + "'\n"
	if err := os.WriteFile(wrk, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	s := &Stack{Tools: Tools{Wrk: wrk}, URL: "http://x/compute", dir: dir}
	if err := os.CopyFS(dir, wrkScripts); err != nil {
		t.Fatal(err)
	}
	const d = 1500 * time.Millisecond
	for _, c := range []struct {
		load   Load
		script string // of the row
		want   string
	}{
		{Closed(64, d), "", "-c64 SCRIPTS/post.lua http://x/compute"},
		{Closed(64, d), "form.lua", "-c64 SCRIPTS/form.lua http://x/compute"},
		{NewConnections(3, d), "", "-c3 SCRIPTS/post.lua -H Connection: close http://x/compute"},
		{Responses(1<<20, d), "", "-c8 SCRIPTS/result.lua http://x/bytes?size=1048576"},
		{Requests(1<<20, d), "", "-c8 SCRIPTS/post.lua http://x/compute -- 1048576"},
	} {
		s.row.script = c.script
		r, err := c.load.send(t.Context(), s)
		if err != nil || r.Requests != 120000 {
			t.Fatalf("%+v, %v", r, err)
		}
		args, err := os.ReadFile(filepath.Join(dir, "args"))
		got := strings.NewReplacer("-t1 ", "", "-d2s --timeout 60s -s ", "", filepath.Join(dir, "wrk"), "SCRIPTS", "\n", "").Replace(string(args))
		if err != nil || got != c.want {
			t.Errorf("got %s, want %s; %v", got, c.want, err)
		}
	}
}

// TestLoadWithoutResponse checks that a row without a response has no figures.
func TestLoadWithoutResponse(t *testing.T) {
	nothing := Load{Name: "nothing", send: func(context.Context, *Stack) (*Result, error) { return &Result{Seconds: 1}, nil }}
	if sample, err := nothing.run(t.Context(), &Stack{}, &Options{}); err != nil || len(sample.Figures) > 0 {
		t.Errorf("%+v, %v", sample, err)
	}
}

// stoppedSample is a sample whose load took a second, with a request every millisecond. The
// n-th request took n microseconds.
func stoppedSample(open bool, stops ...steal.Stop) Sample {
	var all *load.Result
	if open {
		all = &load.Result{}
		for i := range 1000 {
			all.Samples = append(all.Samples, load.Sample{Due: at(i), Latency: time.Duration(i+1) * time.Microsecond})
		}
	}
	s := Sample{Figures: maps.Clone(testLatency)}
	s.addStops(all, stops, at(0), at(1000))
	return s
}

var testLatency = Figures{P50: 1, P95: 1.5, P99: 2, P999: 3, P9999: 3.5, Max: 4}

var began = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func at(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }

func stop(from, to int) steal.Stop { return steal.Stop{From: at(from), To: at(to)} }

func TestAddStops(t *testing.T) {
	for name, c := range map[string]struct {
		open               bool
		stops              []steal.Stop
		stopped, disturbed float64
		max                float64 // µs; 0 means no latency
	}{
		"no stop":                         {true, nil, 0, 0, 1000},
		"the last requests are disturbed": {true, []steal.Stop{stop(905, 1000)}, 9.5, 10, 900},
		"most requests are disturbed":     {true, []steal.Stop{stop(305, 900)}, 59.5, 70, 0},
		"a closed loop":                   {false, []steal.Stop{stop(100, 400)}, 30, 0, 4},
		"stops before and after the load": {true, []steal.Stop{stop(-500, -400), stop(1500, 1600)}, 0, 0, 1000},
	} {
		s := stoppedSample(c.open, c.stops...)
		if s.Figures[Stopped] != c.stopped || s.Figures[Disturbed] != c.disturbed || int(s.Figures[Max]) != int(c.max) {
			t.Errorf("%s: %v", name, s.Figures)
		}
		if _, known := s.Figures[P99]; known != (c.max != 0) {
			t.Errorf("%s: %v", name, s.Figures)
		}
		if _, known := s.Figures[Disturbed]; known != c.open || (s.All != nil) != c.open || c.open && !maps.Equal(s.All, testLatency) {
			t.Errorf("%s: %v, of all requests %+v", name, s.Figures, s.All)
		}
	}
}

// TestWatched runs a load while a watcher starts, fails to start, or is not wanted.
func TestWatched(t *testing.T) {
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		o    Options
		done bool
	}{
		"no watch":            {Options{}, true},
		"no such program":     {Options{Watch: true, Tools: Tools{Lab: "/no/such/program"}}, false},
		"a program that ends": {Options{Watch: true, Tools: Tools{Lab: "/bin/false"}}, false},
	} {
		done := false
		_, err := c.o.watched(steal.Period, func() error { done = true; return broken })
		if err == nil || done != c.done || errors.Is(err, broken) != done {
			t.Errorf("%s: done %v, %v", name, done, err)
		}
	}
}
