package bench

import (
	"bytes"
	"context"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/config"
)

// testWork measures one sidecar and two by all jobs, for a moment.
func testWork(t *testing.T, remora string) {
	rows := choose(t, WorkRows(), "remora-1", "remora-2", "remora-2-2loops")
	loads, err := WorkLoads(Jobs, 50*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Run(context.Background(), Options{
		Tools: Tools{Lab: self(t), Remora: remora}, Kind: Work, Rows: rows, Rounds: 1, Loads: loads,
		Rest: Rest{Duration: 100 * time.Millisecond, Connections: 20}, Progress: func(string) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	noChildren(t)
	if err := r.Check(); err != nil {
		t.Error(err)
	}
	for _, l := range loads {
		for row, want := range map[string]bool{"remora-1": true, "remora-2": true, "remora-2-2loops": l.job == Busy} {
			cpu, perGiB := r.Samples.Values(row, l.Name, CPU), r.Samples.Values(row, l.Name, PerGiB)
			if (len(cpu) == 1) != want || (len(perGiB) == 1) != (want && l.job == Bodies) {
				t.Errorf("%s, %s: CPU %v, per GiB %v", row, l.Name, cpu, perGiB)
			}
			if len(perGiB) == 1 && math.Round(perGiB[0]*float64(l.bytes)) != math.Round(cpu[0]*1.073741824*1000) {
				t.Errorf("%s, %s: CPU %v µs of %d bytes, per GiB %v s", row, l.Name, cpu, l.bytes, perGiB)
			}
		}
	}
	verdicts := r.verdicts()
	if len(verdicts) == 0 {
		t.Error("no promises")
	}
	for _, v := range verdicts {
		alone := strings.Contains(v.What, "2 loops each") || !strings.Contains(v.What, " / ")
		if v.Known() != alone {
			t.Errorf("%s: measured %v, want it to be: %v", v.What, v.Measured, alone)
		}
	}
	var b bytes.Buffer
	if err := r.Text(&b); err != nil || !strings.Contains(b.String(), "### responses of 256 KiB, 8 connections") || !strings.Contains(b.String(), "keep-alive, unless a table says otherwise;") {
		t.Errorf("%v:\n%s", err, &b)
	}
}

// TestWorkRows checks the loops of each sidecar.
func TestWorkRows(t *testing.T) {
	loops := map[string]int{"remora-1": 1, "remora-2": 1, "remora-1-gnet": 1, "remora-2-gnet": 1, "remora-2-2loops": 2, "remora-2-4loops": 4}
	for _, row := range WorkRows() {
		if !row.sidecars() {
			continue
		}
		if gnet := strings.HasSuffix(row.Name, "gnet"); gnet != slices.Contains(row.env, "REMORA_ENGINE=gnet") {
			t.Errorf("%s: environment %q", row.Name, row.env)
		}
		for _, h := range row.chain {
			file := configFile(t, testPlace(t, h))
			c, err := config.Load(file)
			if err != nil || c.Loops != loops[row.Name] || c.Loops == 0 {
				t.Errorf("%s: %d loops, %v", row.Name, c.Loops, err)
			}
		}
		loops[row.Name] = 0
	}
	for row, left := range loops {
		if left > 0 {
			t.Errorf("no row %s", row)
		}
	}
}

// TestWorkLoads checks that each job has loads, which no other one has, and that rows are not
// measured under those that are not theirs.
func TestWorkLoads(t *testing.T) {
	all, err := WorkLoads(Jobs, time.Second)
	if err != nil || len(all) != 13 || all[0].Name != at64 {
		t.Fatalf("%d loads, %v", len(all), err)
	}
	sum := 0
	for _, job := range Jobs {
		loads, err := WorkLoads([]Job{job}, time.Second)
		if err != nil || (len(loads) == 0) != (job == Resting) {
			t.Errorf("%s: %d loads, %v", job, len(loads), err)
		}
		sum += len(loads)
	}
	if sum != len(all) {
		t.Errorf("%d loads of single jobs, %d of all", sum, len(all))
	}
	if _, err := WorkLoads([]Job{"idle"}, time.Second); err == nil {
		t.Error("an unknown job was accepted")
	}
	o := Options{Loads: all, Rows: WorkRows()}
	for _, row := range o.Rows {
		want := map[string]int{"floor-2": 4, "relay-1": 5, "relay-2": 5, "remora-2-2loops": 1, "remora-2-4loops": 1}[row.Name]
		if got := len(o.loads(row)); want > 0 && got != want || want == 0 && got != 13 {
			t.Errorf("%s: %d loads", row.Name, got)
		}
	}
	if o.Loads, err = WorkLoads([]Job{Bodies}, time.Second); err != nil {
		t.Fatal(err)
	}
	if got := Names(o.measured()); slices.Contains(got, "floor-2") || slices.Contains(got, "remora-2-2loops") || len(got) != 15 {
		t.Errorf("rows of bodies: %v", got)
	}
	o.Loads, o.Rest.Connections = nil, 1
	if got := Names(o.measured()); !slices.Equal(got, []string{"nginx-1", "nginx-1-debian", "haproxy-1", "haproxy-1-debian", "envoy-1", "remora-1", "remora-1-gnet"}) {
		t.Errorf("rows at rest: %v", got)
	}
}

// TestWorkRequests checks what loads without wrk send: sizes, and a connection for each request.
func TestWorkRequests(t *testing.T) {
	var accepted, requests, received atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		if r.ContentLength > 0 {
			received.Add(r.ContentLength)
		}
		if r.URL.Path == computePath != (r.Method == http.MethodPost) || r.Method == http.MethodGet && r.URL.RequestURI() != "/bytes?size=65536" {
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			accepted.Add(1)
		}
	}
	server.Start()
	defer server.Close()
	const d = 20 * time.Millisecond
	for _, c := range []struct {
		load Load
		size int64
		new  bool
	}{{Closed(2, d), 300, false}, {NewConnections(2, d), 300, true}, {Responses(64<<10, d), 0, false}, {Requests(64<<10, d), 64 << 10, false}} {
		accepted.Store(0)
		requests.Store(0)
		received.Store(0)
		r, err := c.load.send(t.Context(), &Stack{URL: server.URL + computePath})
		if err != nil || r.Errors > 0 || r.Requests == 0 {
			t.Errorf("%s: %+v, %v", c.load.Name, r, err)
		}
		if got := accepted.Load(); c.new && got < requests.Load() || !c.new && got > bodyConnections {
			t.Errorf("%s: %d connections, %d requests", c.load.Name, got, requests.Load())
		}
		if got := received.Load(); got != c.size*requests.Load() {
			t.Errorf("%s: %d bytes, %d requests", c.load.Name, got, requests.Load())
		}
	}
}

// TestWorkVerdicts checks each promise at its limit and above.
func TestWorkVerdicts(t *testing.T) {
	limits := map[string]float64{}
	judge := func(over float64) {
		t.Helper()
		var s Samples
		add := func(row, load string, f Figures) {
			s = append(s, Sample{Round: 1, Row: row, Load: load, Requests: 1, Figures: f})
		}
		loads, err := WorkLoads(Jobs, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range loads {
			two, one := map[Job]float64{Busy: 80, Low: 125, Fresh: 100, Bodies: 100}[l.job], map[Job]float64{Busy: 85, Fresh: 100}[l.job]
			if l.Name == Open(200, 0).Name {
				two = 150
			}
			for _, peer := range []string{"relay-2", "haproxy-1", "haproxy-2", "nginx-2"} {
				add(peer, l.Name, Figures{CPU: 100, PerGiB: 100, AddedP50: 100})
			}
			add("remora-1", l.Name, Figures{CPU: one * over})
			add("remora-2", l.Name, Figures{CPU: two * over, PerGiB: 100 * over, AddedP50: 100 * over, RSS: 30.51 * over})
		}
		add("remora-2-2loops", at64, Figures{CPU: 88 * over * over})
		add("remora-2-4loops", at64, Figures{CPU: 96 * over * over})
		add("remora-1", AtRest, Figures{Connection: over, RestCPU: 0.3 * over, StartTime: 50 * over})
		verdicts := s.workVerdicts()
		if len(verdicts) != 32 {
			t.Errorf("%d promises", len(verdicts))
		}
		for _, v := range verdicts {
			if !v.Known() || v.Holds() != (over < 1.0001) {
				t.Errorf("%g times as much: %+v", over, v)
			}
			limits[v.What] = v.Limit
		}
	}
	judge(1)
	judge(1.01)
	if len(limits) != 32 {
		t.Errorf("promises of the same name: %v", limits)
	}
}
