package certs

import (
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/testcerts"
)

// TestCheckTime: Check compares certificates with the given time. The tests of the
// command "remora check" cover the faults of each file.
func TestCheckTime(t *testing.T) {
	ca := testcerts.New(t)
	dir := testcerts.NewDir(t, ca, nil, nil)
	dir.Rotate(ca.Issue(testcerts.Leaf{}))
	o := Options{Cert: dir.Cert, Key: dir.Key, CA: dir.CA}
	for _, c := range []struct {
		after time.Duration
		want  string // fault of both certificates; empty means none
	}{
		{-24 * time.Hour, "not valid before"}, {0, ""}, {24 * time.Hour, "expired at"},
	} {
		faults := Check(o, time.Now().Add(c.after))
		var keys []string
		for _, f := range faults {
			keys = append(keys, f.Key)
			if !strings.Contains(f.Err.Error(), c.want) {
				t.Errorf("%s later: %s: %v, want %q", c.after, f.Key, f.Err, c.want)
			}
		}
		if got, want := strings.Join(keys, " "), "cert ca"; c.want != "" && got != want || c.want == "" && got != "" {
			t.Errorf("%s later: faults in %q", c.after, got)
		}
	}
	if faults := Check(Options{}, time.Now()); faults != nil {
		t.Errorf("no files: %v", faults)
	}
}
