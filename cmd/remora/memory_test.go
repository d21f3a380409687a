package main

import (
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestInitializers: every sidecar runs the initializers of all packages, also of commands that it never runs. What an
// initializer makes for these is made when they are used.
func TestInitializers(t *testing.T) {
	const most = 320 << 10 // bytes; package config has lists of all settings, which every sidecar uses
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(out), "\ninit github.com/russross/blackfriday") {
		t.Error("the library of manual pages is in the program: expected it behind the build tag manual")
	}
	seen := 0
	for _, m := range regexp.MustCompile(`(?m)^init (\S+) @.* (\d+) bytes, \d+ allocs$`).FindAllStringSubmatch(string(out), -1) {
		if !strings.HasPrefix(m[1], "github.com/remora-proxy/remora/") {
			continue
		}
		seen++
		if n, err := strconv.Atoi(m[2]); err != nil || n > most {
			t.Errorf("the initializers of %s allocate %s bytes, expected at most %d", m[1], m[2], most)
		}
	}
	if seen == 0 {
		t.Errorf("no initializers seen: %s", out)
	}
}
