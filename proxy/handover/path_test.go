package handover

import (
	"os"
	"path/filepath"
	"testing"
)

// TestSuccessorPath: the path is the same for a process and its successor, and different for
// any other process.
func TestSuccessorPath(t *testing.T) {
	t.Chdir(t.TempDir())
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	one := Path("/run/remora", "a.yaml", "n1", "127.0.0.1:1")
	if same := Path("/run/remora", filepath.Join(dir, "a.yaml"), "n1", "127.0.0.1:1"); same != one {
		t.Errorf("%s and %s", one, same)
	}
	for _, other := range []string{
		Path("/run/remora", "b.yaml", "n1", "127.0.0.1:1"),
		Path("/run/remora", "a.yaml", "n2", "127.0.0.1:1"),
		Path("/run/remora", "a.yaml", "n1", "127.0.0.1:2"),
	} {
		if other == one {
			t.Errorf("two processes have the path %s", one)
		}
	}
	if none := Path("", "a.yaml", "n1", ""); none != "" {
		t.Errorf("the path is %s without a directory", none)
	}
}
