package program

import (
	"os"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"unsafe"
)

func TestRelease(t *testing.T) {
	mappings, err := program()
	if err != nil {
		t.Fatal(err)
	}
	constants := func(m mapping) bool { return !m.code }
	for _, c := range []struct {
		name            string
		release         func() error
		code, constants bool // are released
	}{
		{"all", ReleasePages, true, true},
		{"constants", func() error { return release(constants, 0) }, false, true},
		{"too few constants", func() error { return release(constants, 1<<40) }, false, false},
	} {
		touch(t, mappings)
		if err := c.release(); err != nil {
			t.Fatal(err)
		}
		for _, m := range mappings {
			want := c.constants
			if m.code {
				want = c.code
			}
			// The test goes on, so some pages are back already. Not all are.
			n, all := residentBytes(t, m), int(m.end-m.begin)
			if (n < all) != want {
				t.Errorf("%s: %d of %d bytes are resident, code: %v", c.name, n, all, m.code)
			}
		}
	}
}

// touch makes all pages of the mappings resident.
func touch(t *testing.T, mappings []mapping) {
	const populateRead = 22 // MADV_POPULATE_READ, of Linux 5.14
	for _, m := range mappings {
		if _, _, errno := syscall.Syscall(syscall.SYS_MADVISE, m.begin, m.end-m.begin, populateRead); errno != 0 {
			t.Skip("the kernel does not make pages resident:", errno)
		}
	}
}

// residentBytes returns how many bytes of a mapping are resident.
func residentBytes(t *testing.T, m mapping) int {
	pages, err := os.Open("/proc/self/pagemap")
	if err != nil {
		t.Skip("only with /proc:", err)
	}
	defer pages.Close()
	n, _, err := m.state(pages)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestUnwritable(t *testing.T) {
	const file = "/usr/bin/a b (deleted)"
	for _, c := range []struct {
		line string
		want []mapping
	}{
		{"00400000-00ea1000 r-xp 00000000 fe:00 9994361                            " + file, []mapping{{0x400000, 0xea1000, true}}},
		{"00400000-00ea1000 r--p 00aa1000 fe:00 9994361                            " + file, []mapping{{0x400000, 0xea1000, false}}},
		{"00400000-00ea1000 rw-p 016f3000 fe:00 9994361                            " + file, nil},
		{"00400000-00ea1000 r-xp 00000000 fe:00 9994361                            /lib" + file, nil},
		{"00400000-00ea1000 rw-p 00000000 00:00 0 ", nil},
		{"7ffd000-7ffe000 r-xp 00000000 00:00 0                                  [vdso]", nil},
		{"", nil},
	} {
		if all := unwritable(c.line+"\n", file); !slices.Equal(all, c.want) {
			t.Errorf("%q: %v", c.line, all)
		}
	}
}

// TestState: a page that was written, as by a debugger, is told from one that was read.
func TestState(t *testing.T) {
	pages, err := os.Open("/proc/self/pagemap")
	if err != nil {
		t.Skip("only with /proc:", err)
	}
	defer pages.Close()
	file, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	size := 4 * os.Getpagesize()
	for _, write := range []bool{false, true} {
		memory, err := syscall.Mmap(int(file.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE)
		if err != nil {
			t.Fatal(err)
		}
		runtime.KeepAlive(memory[0])
		want := os.Getpagesize()
		if write {
			memory[size-1] = 1
			want *= 2
		}
		begin := uintptr(unsafe.Pointer(&memory[0]))
		resident, written, err := mapping{begin: begin, end: begin + uintptr(size)}.state(pages)
		if err != nil || resident < want || written != write {
			t.Errorf("written: %v, reported %v, %d bytes resident, expected at least %d, %v", write, written, resident, want, err)
		}
		syscall.Munmap(memory)
	}
}

// TestWasWritten: only a page that is there, or swapped out, can differ from the file.
func TestWasWritten(t *testing.T) {
	const softDirty = 1 << 55 // kernels that have this bit set it for absent pages of a new mapping, too
	for state, want := range map[uint64]bool{
		0: false, softDirty: false, present | ofFile: false, present | ofFile | softDirty: false,
		present: true, present | softDirty: true, swapped: true,
	} {
		if got := wasWritten(state); got != want {
			t.Errorf("%#x: %v", state, got)
		}
	}
}
