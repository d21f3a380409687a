package unixaddr

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/internal/must"
)

// TestCheck checks which addresses are valid, and that Split keeps others.
func TestCheck(t *testing.T) {
	for addr, want := range map[string]string{
		"unix:/run/app.sock":                "",
		"unix:@app":                         "",
		"unix:/" + strings.Repeat("a", 106): "",
		"unix:@" + strings.Repeat("a", 106): "",
		"unix:/" + strings.Repeat("a", 107): "at most 107 bytes behind unix:, got 108",
		"unix:@" + strings.Repeat("a", 107): "got 108",
		"unix:":                             "expected unix:/path or unix:@name",
		"unix:app.sock":                     "expected unix:/path or unix:@name",
		"unix://run/app.sock":               "",
		"unix:/":                            "name of a socket",
		"unix:@":                            "name of a socket",
		"unix:/run/":                        "name of a socket",
		"unix:/run/a b":                     "no space",
		"unix:/run/a\x00":                   "control character",
		"unix:/run/a:0":                     "colon",
	} {
		got := ""
		if err := Check(addr); err != nil {
			got = err.Error()
		}
		if (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%q: %q, want %q", addr, got, want)
		}
		if !Is(addr) {
			t.Errorf("%q is no Unix socket", addr)
		}
	}
	if network, address := Split("unix.test:80"); Is("unix.test:80") || network != "tcp" || address != "unix.test:80" {
		t.Errorf("a host became %s, %s", network, address)
	}
}

// TestLongest: the system accepts the longest names of both kinds.
func TestLongest(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, strings.Repeat("a", MaxLength-len(dir)-1))
	if len(dir) > 90 {
		t.Fatalf("the temporary directory is too long: %s", dir)
	}
	for _, name := range []string{path, "@" + strings.Repeat("b", MaxLength-1)} {
		network, address := Split("unix:" + name)
		ln := must.ListenOn(t, network, address)
		ln.Close()
	}
}
