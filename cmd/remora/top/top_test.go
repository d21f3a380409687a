package top

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/remora-proxy/remora/internal/printable"
	"github.com/remora-proxy/remora/proxy/admin"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// second returns a frame of one second in which a service had 200 requests.
func second() *frame {
	counts := make([]uint64, stats.HistogramBuckets)
	counts[18], counts[27] = 196, 4 // 1 ms and 10 ms
	unhealthy := false
	svc := func(factor uint64) admin.ServiceStats {
		s := admin.ServiceStats{
			Outcomes: map[string]uint64{"2xx": 194 * factor, "5xx": 4 * factor, "failed": 2 * factor},
			Counts:   make([]uint64, stats.HistogramBuckets),
			Hedges:   admin.HedgeStats{Sent: 12 * factor, Missed: 2 * factor, Won: 5 * factor, Gates: map[string]uint64{"budget": 3 * factor, "cascade": 0, "useless": 7 * factor}, Verdict: "hedging would take 46 ms off P99.9 at 2.7% extra load"},
		}
		for i := range s.Counts {
			s.Counts[i] = factor * counts[i]
		}
		s.Pending, s.Queued = 17, 2
		s.Endpoints = []admin.EndpointState{
			{Address: "10.0.0.1:80", Attempts: 150 * factor, Pending: 1, LatencyMS: 1.25, Connections: 4},
			{Address: "10.0.0.2:80", Attempts: 60 * factor, Failed: 6 * factor, Healthy: &unhealthy},
			{Address: "10.0.0.3:80", Attempts: 50 - 25*factor, Pending: 16, Stalled: true}, // its counters were reset
		}
		return s
	}
	f := &frame{
		before: &admin.Stats{Uptime: 10, Services: map[string]admin.ServiceStats{"compute": svc(1)}},
		now:    &admin.Stats{Node: "api-1", Phase: "serving", Version: "v1", Uptime: 11, Connections: 9, Services: map[string]admin.ServiceStats{"compute": svc(2)}},
		recent: admin.Milliseconds{
			Arrivals: make([]uint32, 1000), Answers: make([]uint32, 1000), Bytes: make([]uint64, 1000), Worst: make([]int64, 1000),
		},
	}
	for i := range f.recent.Arrivals {
		f.recent.Arrivals[i] = 1
	}
	f.recent.Arrivals[500] = 20
	f.recent.Worst[510] = 12_300
	turns := make([]uint64, stats.HistogramBuckets)
	f.before.Loops = []admin.LoopStats{{Events: 100, Turns: turns}}
	turns = append([]uint64(nil), turns...)
	turns[2] = 50
	f.now.Loops = []admin.LoopStats{{Events: 250, Turns: turns}}
	return f
}

func TestFrame(t *testing.T) {
	text := strings.Join(second().lines(defaultSize.columns), "\n")
	for _, want := range []string{
		"remora api-1  serving  v1  up 11s  9 connections",
		"1 loops  50 turns/s of 3.0 events  turn P50 30 µs  P99 30 µs  longest 30 µs",
		"compute                    200    1.0 ms     10 ms     10 ms       6.0    5.0 %   50.0 %       17       2",
		"not hedged: useless 7  budget 3\ncompute: hedging would take 46 ms off P99.9 at 2.7% extra load\n\n",
		"last 1.0 s by the millisecond: at most 20 requests in one (20.0k/s), 1019/s on average; worst latency 12 ms",
		"10.0.0.2:80                  compute              unhealthy         0          60       6.0         -      0",
		"10.0.0.3:80                  compute              stalled          16           0         0         -      0",
		"10.0.0.1:80                  compute              ok                1         150         0    1.2 ms      4",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	for _, line := range strings.Split(text, "\n") {
		if requests, ok := strings.CutPrefix(line, "requests  "); ok &&
			(strings.Count(requests, "█") != 1 || utf8.RuneCountInString(requests) != 110 || strings.Index(requests, "█") < 100) {
			t.Errorf("the burst is missing: %s", line)
		}
	}
	if worst, ok := strings.Index(text, "10.0.0.2:80"), strings.Index(text, "10.0.0.1:80"); worst > ok {
		t.Error("endpoints with problems are not first")
	}
	for _, room := range []size{{40, 10}, {80, 24}, {200, 100}, {20, 3}} {
		var v view
		lines := v.cut(second().lines(room.columns), room)
		if len(lines) > room.rows {
			t.Errorf("%d lines in %v", len(lines), room)
		}
		for _, line := range lines {
			if utf8.RuneCountInString(line) > room.columns {
				t.Errorf("%q in %v", line, room)
			}
		}
	}
}

// TestFrameOfMissedHedges: hedges that were sent before the frame and refused during it do
// not count against those sent during it.
func TestFrameOfMissedHedges(t *testing.T) {
	f := second()
	svc := f.now.Services["compute"]
	svc.Hedges.Missed += svc.Hedges.Sent
	f.now.Services["compute"] = svc
	if text, want := f.services(defaultSize.columns)[1], "   0.0 %        -       17"; !strings.Contains(text, want) {
		t.Errorf("%q is not in %q", want, text)
	}
}

// TestFrameOfVerdicts: there is room for those of the busiest services.
func TestFrameOfVerdicts(t *testing.T) {
	f := second()
	for i, name := range []string{"a", "b", "c", "d"} {
		s := admin.ServiceStats{Outcomes: map[string]uint64{"2xx": uint64(i)}}
		if name != "d" {
			s.Hedges.Verdict = "verdict on " + name
		}
		f.now.Services[name] = s
	}
	b := f.now.Services["b"]
	b.Hedges.Periodic = "the replicas of b stall together every 60 s for 0.9 s"
	b.Hedges.Choice = "hedges after 16 ms"
	f.now.Services["b"] = b
	got := f.verdicts()
	if len(got) != 5 || got[3] != "b: hedges after 16 ms" || got[4] != b.Hedges.Periodic || !strings.HasPrefix(got[0], "compute: ") || got[1] != "c: verdict on c" || got[2] != "b: verdict on b" {
		t.Errorf("%q", got)
	}
}

// TestFrameOfErrors: error responses are listed by listener and code, the most frequent first, and
// those of requests without a service count in the rates.
func TestFrameOfErrors(t *testing.T) {
	f := second()
	f.before.Listeners = map[string]*admin.ListenerErrors{"egress": {Errors: map[string]uint64{"no-route": 90, "deadline": 5}, Unrouted: 90}}
	f.now.Listeners = map[string]*admin.ListenerErrors{
		"egress":  {Errors: map[string]uint64{"no-route": 100, "deadline": 5}, Unrouted: 100},
		"ingress": {Errors: map[string]uint64{"draining": 20}, Unrouted: 20},
	}
	text := strings.Join(f.lines(defaultSize.columns), "\n")
	for _, want := range []string{
		"(no service)                30         -         -         -        30 ",
		"\ningress              draining                          20        20\n" +
			"egress               no-route                          10       100\n" +
			"egress               deadline                           0         5\n\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	if f.now.Try = "curl -i http://127.0.0.1:15001/"; !strings.Contains(strings.Join(f.lines(80), "\n"), "\nno traffic yet: try curl -i http://127.0.0.1:15001/\n") {
		t.Error("no first request is shown")
	}
}

// TestFrameOfSources: a refused reload and a lost source show.
func TestFrameOfSources(t *testing.T) {
	f := second()
	f.now.Config = admin.ConfigState{Generation: 3, Refused: &admin.RefusedReload{Code: "invalid", Reason: "line 3\nline 4"}}
	f.now.Sources = []admin.SourceStats{{Name: "file", Up: true}, {Name: "etcd", Code: "denied", Error: "refused", Kept: 7}, {Name: "dns"}}
	want := []string{"configuration 3  file up  etcd down (denied): refused; 7 endpoints kept  dns has not responded yet", "last reload refused at 00:00:00 (invalid): line 3"}
	if got := f.sources(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestTable: a table that is too wide loses the columns with the highest rank, and says how many.
func TestTable(t *testing.T) {
	x := table{
		columns: []column{{"name", 6, true, 0}, {"a", 4, false, 2}, {"b", 4, false, 1}, {"c", 4, false, 3}},
		rows:    [][]string{{"a long name", "1", "2", "3"}},
	}
	for room, want := range map[int][2]string{
		30: {"name      a    b    c", "… name    1    2    3"},
		21: {"name      a    b    c", "… name    1    2    3"},
		20: {"name      a    b +1", "… name    1    2"},
		18: {"name      b +2", "… name    2"},
		3:  {"name   +3", "… name"},
	} {
		if got := x.lines(room); got[0] != want[0] || got[1] != want[1] {
			t.Errorf("in %d: got %q, want %q", room, got, want)
		}
	}
}

// TestScroll: all lines can be reached, and the first one stays.
func TestScroll(t *testing.T) {
	var lines []string
	for i := range 10 {
		lines = append(lines, fmt.Sprint(i))
	}
	var v view
	for _, step := range []struct {
		key, want string
	}{
		{"", "0 1 2 3"}, {keyDown, "0 2 3 4"}, {"j", "0 3 4 5"}, {keyUp, "0 2 3 4"}, {keyPageDown, "0 4 5 6"}, {keyEnd, "0 7 8 9"},
		{keyDown, "0 7 8 9"}, {"b", "0 5 6 7"}, {keyHome, "0 1 2 3"}, {"k", "0 1 2 3"}, {"x", "0 1 2 3"},
	} {
		v.scroll(step.key, 5)
		got := v.cut(lines, size{80, 5})
		if shown := strings.Join(got[:4], " "); len(got) != 5 || shown != step.want {
			t.Errorf("after %q: %q, want %q", step.key, got, step.want)
		}
	}
	v.scroll(keyEnd, 5)
	if got := v.cut(lines, size{80, 10}); len(got) != 10 || v.first != 0 {
		t.Errorf("with room for all: %q", got)
	}
}

// TestReading: while the sidecar does not respond, the last frame stays, below how long ago it was.
func TestReading(t *testing.T) {
	at := time.Unix(1700000000, 0)
	var r reading
	r.take(second(), nil, at)
	r.take(nil, errors.New("refused\x1b"), at.Add(3*time.Second))
	got := r.lines(80, at.Add(7*time.Second))
	if got[0] != "remora top: no response for 7s" || got[1] != "refused�" || !strings.HasPrefix(got[3], "remora api-1") {
		t.Errorf("%q", got[:4])
	}
	r.take(second(), nil, at.Add(8*time.Second))
	if got := r.lines(80, at.Add(8*time.Second)); !strings.HasPrefix(got[0], "remora api-1") {
		t.Errorf("%q", got[0])
	}
}

// TestTopPrintsNoControlSequences: names and addresses come from other machines.
func TestTopPrintsNoControlSequences(t *testing.T) {
	const hostile = "\x1b[31m \x1b]52;c;aGk=\a \u009b2J \r \u0085 \u202e"
	f := second()
	name := "bad" + hostile
	f.now.Node, f.now.Phase, f.now.Version = name, name, name
	for _, s := range []*admin.Stats{f.before, f.now} {
		svc := s.Services["compute"]
		svc.Hedges.Gates[name] += uint64(s.Uptime)
		for i := range svc.Endpoints {
			svc.Endpoints[i].Address = hostile
		}
		s.Services = map[string]admin.ServiceStats{name: svc}
	}
	text := strings.Join(f.lines(200), "\n")
	if !strings.Contains(text, "bad\ufffd[31m") {
		t.Errorf("the names are missing: %q", text)
	}
	if i := strings.IndexFunc(text, func(r rune) bool { return !printable.Is(r) && r != '\n' }); i >= 0 {
		t.Errorf("the frame has a control character at %d: %q", i, text)
	}
}
