package fleet

import (
	"os"
	"path/filepath"
	"testing"
)

// TestKept: the revision on disk is read back, but only for the prefix it was kept for.
func TestKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	if r, err := LoadKept(dir, "/p"); err != nil || r != (Revision{}) {
		t.Errorf("nothing kept: %+v, %v", r, err)
	}
	for n := range int64(3) {
		k := Kept{"/p", Revision{Number: n, Text: "text"}}
		if err := k.Keep(dir); err != nil {
			t.Fatal(err)
		}
		if r, err := LoadKept(dir, "/p"); err != nil || r != k.Revision {
			t.Errorf("got %+v, %v; want %+v", r, err, k.Revision)
		}
	}
	if r, err := LoadKept(dir, "/other"); err != nil || r != (Revision{}) {
		t.Errorf("of another prefix: %+v, %v", r, err)
	}
	for _, damaged := range []string{"", "{", "[]"} {
		if err := os.WriteFile(filepath.Join(dir, keptName), []byte(damaged), 0o600); err != nil {
			t.Fatal(err)
		}
		if r, err := LoadKept(dir, "/p"); err == nil || r != (Revision{}) {
			t.Errorf("%q: %+v, %v", damaged, r, err)
		}
	}
}

// TestNoDirectory: without a directory nothing is kept, also if the working directory has such a file.
func TestNoDirectory(t *testing.T) {
	t.Chdir(t.TempDir())
	k := Kept{Prefix: "/p", Revision: Revision{Number: 7, Text: "a: b"}}
	if err := k.Keep("."); err != nil {
		t.Fatal(err)
	}
	if r, err := LoadKept("", "/p"); err != nil || r != (Revision{}) {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestOverlayOf: revision 0 is no overlay.
func TestOverlayOf(t *testing.T) {
	if o := (&Revision{}).Overlay(); o != nil {
		t.Errorf("%+v", o)
	}
	if o := (&Revision{Number: 7, Text: "a: b"}).Overlay(); o.Name != "revision 7" || string(o.Text) != "a: b" {
		t.Errorf("%+v", o)
	}
}
