package program

import (
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
	if now := residentFile(t); now > before*9/10 {
		t.Errorf("%d KiB of the program are resident, before %d", now, before)
	}
}

// residentFile returns the resident memory of mapped files in KiB.
func residentFile(t *testing.T) int {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Skip("only with /proc:", err)
	}
	found := regexp.MustCompile(`RssFile:\s+(\d+) kB`).FindSubmatch(status)
	if found == nil {
		t.Skip("only where the kernel counts resident pages of files")
	}
	n, err := strconv.Atoi(string(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestConstants(t *testing.T) {
	const file = "/usr/bin/a b (deleted)"
	const unwritten, written = "Rss: 8 kB\nAnonymous:             0 kB\n", "Rss: 8 kB\nAnonymous:             4 kB\n"
	for _, c := range []struct {
		mapping, rest string
		want          bool
	}{
		{"00400000-00ea1000 r-xp 00000000 fe:00 9994361                            " + file, unwritten, true},
		{"00400000-00ea1000 r--p 00aa1000 fe:00 9994361                            " + file, unwritten, true},
		{"00400000-00ea1000 r--p 00aa1000 fe:00 9994361                            " + file, written, false},
		{"00400000-00ea1000 rw-p 016f3000 fe:00 9994361                            " + file, unwritten, false},
		{"00400000-00ea1000 r-xp 00000000 fe:00 9994361                            /lib" + file, unwritten, false},
		{"00400000-00ea1000 rw-p 00000000 00:00 0 ", unwritten, false},
		{"7ffd000-7ffe000 r-xp 00000000 00:00 0                                  [vdso]", unwritten, false},
		{"", unwritten, false},
	} {
		all := constants(c.mapping+"\n"+c.rest, file)
		if (len(all) == 1) != c.want || c.want && all[0] != (mapping{0x400000, 0xea1000}) {
			t.Errorf("%q: %x", c.mapping, all)
		}
	}
}
