package bench

import (
	"slices"
	"strings"
	"testing"
)

// What fails is an error when a sidecar or no proxy at all had part in it.
func TestCheck(t *testing.T) {
	r := testReport()
	if err := r.Check(); err != nil {
		t.Errorf("a relay that failed, and a haproxy that refused requests: %v", err)
	}
	good := r.Samples
	for what, bad := range map[string]Sample{
		"a failure": {Row: "remora-2", Requests: 10, Errors: 1}, "a load without an answer": {Row: "remora-1"},
		"the replica's failure": {Row: "direct", Requests: 10, Errors: 1},
	} {
		r.Samples = append(good[:len(good):len(good)], bad)
		if err := r.Check(); err == nil {
			t.Errorf("%s was passed over", what)
		}
	}
	for _, row := range []string{"remora-1", "direct"} {
		r := testReport()
		r.Failures = append(r.Failures, Failure{2, row, "it ended"})
		if err := r.Check(); err == nil || !strings.Contains(err.Error(), "it ended") {
			t.Errorf("%s failed: %v", row, err)
		}
	}
	r.Samples = nil
	if err := r.Check(); err == nil || !strings.Contains(err.Error(), "out of fish") {
		t.Errorf("nothing was measured: %v", err)
	}
}

func TestPreface(t *testing.T) {
	for what, c := range map[string]struct {
		change func(*Report)
		says   string
	}{
		"its own replica":     {func(r *Report) { r.Tools = nil }, "The replica is the lab's own"},
		"nobody watched":      {func(r *Report) { r.Unwatched = "operation\nnot permitted" }, "(operation not permitted)"},
		"a failure":           {func(*Report) {}, "relay-2 failed in round 1, 2: no relay: out of fish"},
		"a failure at length": {func(r *Report) { r.Failures[0].Why = strings.Repeat("€", 1000) }, "1, 2: " + strings.Repeat("€", 300) + "…"},
	} {
		r := testReport()
		c.change(r)
		if said := strings.Join(r.preface(), "\n"); !strings.Contains(said, c.says) {
			t.Errorf("%s: %s", what, said)
		}
	}
	r := testReport()
	r.Unwatched = "so it is"
	if said := r.preface(); slices.Contains(said, testReport().watched()) {
		t.Error("nobody watched, and it says that all was watched")
	}
}
