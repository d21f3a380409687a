package bench

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/internal/must"
)

func TestConnectionTracking(t *testing.T) {
	dir := t.TempDir()
	for content, want := range map[string]bool{"70\n": true, "0\n": false} {
		file := filepath.Join(dir, "count")
		must.WriteFile(t, file, content)
		if got := tracked(file); got != want {
			t.Errorf("%q: %v", content, got)
		}
	}
	if tracked(filepath.Join(dir, "no such")) {
		t.Error("on without the file")
	}
	for on, want := range map[bool]string{true: "connection tracking on;", false: "connection tracking off;"} {
		if s, err := (&Report{Machine: Machine{Tracked: on}}).preface(); err != nil || !strings.Contains(s, want) {
			t.Errorf("%s lacks %q", s, want)
		}
	}
}
