package bench

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestDivide(t *testing.T) {
	for _, c := range []struct {
		all, sidecars, n int
		want             string
	}{
		{8, 2, 2, "sidecar 1 on 0,1, sidecar 2 on 2,3, replica on 6,7, load on 4,5"},
		{8, 1, 2, "sidecar 1 on 0,1, replica on 4,5, load on 2,3"},
		{8, 0, 4, "replica on 4,5,6,7, load on 0,1,2,3"},
		{7, 2, 2, "sidecar 1 on 0,1, sidecar 2 on 2,3, replica on 4,5,6, load on 4,5,6: load and replica share"},
		{2, 1, 1, "sidecar 1 on 0, replica on 1, load on 1: load and replica share"},
		{2, 2, 1, "sidecar 1 on 0, sidecar 2 on 1, replica on 0,1, load on 0,1: ALL SHARE"},
		{2, 2, 2, "sidecar 1 on 0,1, sidecar 2 on 0,1, replica on 0,1, load on 0,1: ALL SHARE"},
		{3, 2, 2, "sidecar 1 on 0,1, sidecar 2 on 2,0, replica on 0,1,2, load on 0,1,2: ALL SHARE"},
		{2, 1, 8, "sidecar 1 on 0,1, replica on 0,1, load on 0,1: ALL SHARE"},
	} {
		all := []int{0, 1, 2, 3, 4, 5, 6, 7}[:c.all]
		if got := divide(all, c.sidecars, c.n).String(); got != c.want {
			t.Errorf("%d processors, %d sidecars, %d each: %s", c.all, c.sidecars, c.n, got)
		}
	}
}

func TestCoreCounts(t *testing.T) {
	for most, want := range map[int][]int{1: {1}, 2: {1, 2}, 4: {1, 2, 4}, 6: {1, 2, 4, 6}} {
		if got := coreCounts(most); !slices.Equal(got, want) {
			t.Errorf("%d: %v", most, got)
		}
	}
}

func TestParseList(t *testing.T) {
	for text, want := range map[string][]int{"0": {0}, "0-2": {0, 1, 2}, "1,3-4,8": {1, 3, 4, 8}} {
		if got, err := parseList(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	if got, err := parseList("0-x"); err == nil {
		t.Errorf("0-x: %v", got)
	}
}

// TestProcessors: a child that is pinned has one of the processors of this process.
func TestProcessors(t *testing.T) {
	all, err := processors()
	if err != nil || len(all) == 0 {
		t.Fatal(all, err)
	}
	path, args := Tools{Taskset: "/bin/taskset"}.pin(all[:1], "/bin/remora", []string{"run"})
	if got := strings.Join(append([]string{path}, args...), " "); got != "/bin/taskset -c "+list(all[:1])+" /bin/remora run" {
		t.Error(got)
	}
	if path, args := (Tools{}).pin(nil, "/bin/remora", []string{"run"}); path != "/bin/remora" || !slices.Equal(args, []string{"run"}) {
		t.Error("without processors:", path, args)
	}
}

// testScale measures a sidecar on one processor for a moment.
func testScale(t *testing.T, remora string) {
	tools, err := Find(Places{Remora: remora})
	if err != nil || tools[Wrk] == "" || tools[Taskset] == "" {
		t.Skip("no wrk or no taskset:", err)
	}
	tools[Lab] = self(t)
	load := ScaleLoad(4, time.Second)
	r, err := Run(context.Background(), Options{
		Tools: tools, Kind: Scale, Rows: choose(t, ScaleRows(1), "remora-1-on-1"), Rounds: 1,
		Loads: []Load{load}, Progress: func(string) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	noChildren(t)
	var b bytes.Buffer
	if err := r.Text(&b); err != nil || !strings.Contains(b.String(), "sidecar 1 on ") {
		t.Errorf("%v:\n%s", err, &b)
	}
	if v := r.Samples.Values("remora-1-on-1", load.Name, CPU); len(v) != 1 || v[0] <= 0 {
		t.Errorf("CPU %v", v)
	}
}

func TestScaleTable(t *testing.T) {
	load := ScaleLoad(64, 0).Name
	r := Report{Kind: Scale, Loads: []string{load}, Rows: []string{"remora-1-on-1", "remora-1-on-4"}, Cores: map[string]string{"remora-1-on-4": "those"}}
	r.Samples = Samples{
		{Round: 1, Row: "remora-1-on-1", Load: load, Figures: Figures{Rate: 10, CPU: 20}},
		{Round: 1, Row: "remora-1-on-4", Load: load, Figures: Figures{Rate: 36, CPU: 22}},
	}
	if got := strings.Join(r.scaleTable(load)[2], "|"); got != "remora-1-on-4|3.60|0.90|1.10|those" {
		t.Error(got)
	}
}
