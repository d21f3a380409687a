package program

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"testing"
)

func TestReleasePages(t *testing.T) {
	before := residentFile(t)
	if err := ReleasePages(); err != nil {
		t.Fatal(err)
	}
	// The test goes on, so some pages are back already.
	if now := residentFile(t); now > before/2 {
		t.Errorf("%d KiB of the program are resident, before %d", now, before)
	}
}

// residentFile returns the resident memory of mapped files in KiB.
func residentFile(t *testing.T) int {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Skip(err)
	}
	found := regexp.MustCompile(`RssFile:\s+(\d+) kB`).FindSubmatch(status)
	if found == nil {
		t.Skip("the system does not say it")
	}
	n, err := strconv.Atoi(string(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestConstant(t *testing.T) {
	const file = "/usr/bin/a b (deleted)"
	for _, c := range []struct {
		line string
		want bool
	}{
		{"00400000-00ea1000 r-xp 00000000 fe:00 9994361                            " + file, true},
		{"00400000-00ea1000 r--p 00aa1000 fe:00 9994361                            " + file, true},
		{"00400000-00ea1000 rw-p 016f3000 fe:00 9994361                            " + file, false},
		{"00400000-00ea1000 r-xp 00000000 fe:00 9994361                            /lib" + file, false},
		{"00400000-00ea1000 rw-p 00000000 00:00 0 ", false},
		{"7ffd000-7ffe000 r-xp 00000000 00:00 0                                  [vdso]", false},
		{"", false},
	} {
		begin, end, ok := constant(c.line+"\n", file)
		if ok != c.want || ok && fmt.Sprintf("%x-%x", begin, end) != "400000-ea1000" {
			t.Errorf("%q: %x-%x, %v", c.line, begin, end, ok)
		}
	}
}
