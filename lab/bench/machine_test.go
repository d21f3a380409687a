package bench

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestConnectionTracking(t *testing.T) {
	dir := t.TempDir()
	for content, want := range map[string]bool{"70\n": true, "0\n": false} {
		file := filepath.Join(dir, "count")
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
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
