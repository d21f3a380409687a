package sidecar

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/remora-proxy/remora/fleet"
)

// TestKeptOverlay: the revision on disk is read back, but only for the prefix it was kept for.
func TestKeptOverlay(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	if r, err := loadKept(dir, "/p"); err != nil || r != (fleet.Revision{}) {
		t.Errorf("nothing kept: %+v, %v", r, err)
	}
	for n := range int64(3) {
		k := keptOverlay{"/p", fleet.Revision{Number: n, Text: "text"}}
		if err := k.keep(dir); err != nil {
			t.Fatal(err)
		}
		if r, err := loadKept(dir, "/p"); err != nil || r != k.Revision {
			t.Errorf("got %+v, %v; want %+v", r, err, k.Revision)
		}
	}
	if r, err := loadKept(dir, "/other"); err != nil || r != (fleet.Revision{}) {
		t.Errorf("of another prefix: %+v, %v", r, err)
	}
	for _, damaged := range []string{"", "{", "[]"} {
		if err := os.WriteFile(filepath.Join(dir, keptName), []byte(damaged), 0o600); err != nil {
			t.Fatal(err)
		}
		if r, err := loadKept(dir, "/p"); err == nil || r != (fleet.Revision{}) {
			t.Errorf("%q: %+v, %v", damaged, r, err)
		}
	}
}

// TestKeepNoDirectory: without a directory nothing is kept, also if the working directory has such a file.
func TestKeepNoDirectory(t *testing.T) {
	t.Chdir(t.TempDir())
	k := keptOverlay{Prefix: "/p", Revision: fleet.Revision{Number: 7, Text: "a: b"}}
	if err := k.keep("."); err != nil {
		t.Fatal(err)
	}
	if r, err := loadKept("", "/p"); err != nil || r != (fleet.Revision{}) {
		t.Errorf("%+v, %v", r, err)
	}
}
