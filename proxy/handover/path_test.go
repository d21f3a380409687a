package handover

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
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
	if name := filepath.Base(one); !regexp.MustCompile("^[0-9a-f]{16}[.]sock$").MatchString(name) {
		t.Errorf("other versions of the program look for another name than %s", name)
	}
	if none := Path("", "a.yaml", "n1", ""); none != "" {
		t.Errorf("the path is %s without a directory", none)
	}
}

// TestDir: the directory is that of the service manager or of the session, or belongs to the user alone.
func TestDir(t *testing.T) {
	own := "/run/remora"
	if user := os.Geteuid(); user != 0 {
		own = filepath.Join(os.TempDir(), fmt.Sprintf("remora-%d", user))
	}
	for _, c := range []struct{ service, session, want string }{
		{"/run/a", "/run/user/7", "/run/a"}, {"/run/a:/run/b", "", "/run/a"}, {"", "/run/user/7", "/run/user/7/remora"}, {"", "", own},
	} {
		t.Setenv("RUNTIME_DIRECTORY", c.service)
		t.Setenv("XDG_RUNTIME_DIR", c.session)
		if got := Dir(); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}
