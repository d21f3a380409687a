package fleet

import (
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/fleet"
	"github.com/remora-proxy/remora/fleet/store"
)

// TestPrintStatus: a page for people. What sidecars say of themselves takes only its own place on it.
func TestPrintStatus(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	head := fleet.Head{
		Newest: 5, Stable: 4, Candidate: 5, To: fleet.Target{Percent: 20, Cut: 1}, Guard: &fleet.Guard{Percentile: 99, Ratio: 1.05},
		Change: fleet.Change{At: at, By: "ann", What: "revision 5 to 20%"},
	}
	counts := func(requests, hedges uint64) map[string]fleet.Service {
		return map[string]fleet.Service{"app": {Requests: requests, Failed: 1, Hedges: hedges, Missed: 1, Won: hedges / 2}}
	}
	sidecars := []fleet.Status{
		{Node: "a", Revision: 5, Since: at, Version: "v1", Change: at, Services: counts(100, 5)},
		{Node: "b", Revision: 4, Since: at, Version: "v1", Change: at, Services: counts(200, 0)},
		{Node: "c", Revision: 5, Since: at, Version: "v1", Change: at, Services: counts(100, 5)},
		{Node: "evil\nd\te\x1b[2J", Revision: 0, Since: at, Version: "v1", Change: at.Add(-time.Second), Services: counts(7, 0), Refused: &fleet.Refusal{
			Revision: 4, Code: "invalid", File: "revision 4", Line: 1, Column: 2, Path: "a", Text: "one\ntwo", More: 2,
		}},
	}
	var out strings.Builder
	if err := printStatus(&out, &head, sidecars, store.Unread{Bad: 1, More: true}, true); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"stable ", "revision 4\n", "revision 5 to 20%, guarded by p99 <= 1.05x\n", "changed ", "2026-01-02T03:04:05Z: revision 5 to 20%, by ann\n",
		"files alone ", "1 of 4 sidecars\n", "2 of 4 sidecars\n", "unreadable ", "1 sidecars\n", "more ", "a ", "revision 5 since 2026-01-02T03:04:05Z, v1\n",
		"refuses revision 4 (invalid): revision 4:1:2: a: one", " (and 2 more)\n",
		"service  revision  requests  failed  hedged  extra load  won\n",
		"app      4         200       1       0       0.0%        0.0%\n",
		"app      5         200       2       10      4.0%        50.0%\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	for _, never := range []string{"\nd", "\ntwo", "\x1b"} {
		if strings.Contains(out.String(), never) {
			t.Errorf("%q in\n%s", never, out.String())
		}
	}
}
