package registry

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

// TestLimit: a service has no more endpoints than the bound, and each time that it begins to have more is logged once.
func TestLimit(t *testing.T) {
	var l Limit
	var log bytes.Buffer
	for i, c := range []struct{ endpoints, lines int }{
		{MaxEndpoints, 0}, {MaxEndpoints + 1, 1}, {2 * MaxEndpoints, 1}, {0, 1}, {MaxEndpoints + 1, 2},
	} {
		n := len(l.Cut(make([]Endpoint, c.endpoints), "s", slog.New(slog.NewTextHandler(&log, nil)).Warn))
		if n != min(c.endpoints, MaxEndpoints) || strings.Count(log.String(), "too many endpoints") != c.lines {
			t.Errorf("step %d: %d endpoints, and the log has %s", i, n, log.String())
		}
	}
}
