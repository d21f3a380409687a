// Package program gives back memory of the program itself: its code and constants.
package program

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
)

// ReleasePages takes the pages of code and constants out of the process's resident memory. Pages that
// are used again come back from the system's page cache without a read, 16 at a time. The start runs
// the initializers of all packages, so 18 MiB are resident after the start. Without /proc ReleasePages does nothing.
func ReleasePages() error { return release(func(mapping) bool { return true }, 0) }

// manyConstants is more than a loaded sidecar uses, in bytes.
const manyConstants = 2 << 20

// ReleaseConstants is ReleasePages for constants only, and only if many are resident. Most are the runtime's tables of functions,
// which are read when a stack grows or is scanned. So work of many kinds brings many pages, and few of them come back.
// Of the code most comes back.
func ReleaseConstants() error { return release(func(m mapping) bool { return !m.code }, manyConstants) }

// release releases the chosen mappings that have more than so many bytes resident.
func release(chosen func(mapping) bool, resident int) error {
	mappings, err := program()
	if err != nil || len(mappings) == 0 {
		return err
	}
	pages, err := os.Open("/proc/self/pagemap")
	if err != nil {
		return nil
	}
	defer pages.Close()
	for _, m := range mappings {
		if !chosen(m) {
			continue
		}
		n, written, e := m.state(pages)
		if e == nil && n > resident && !written {
			e = m.release()
		}
		err = errors.Join(err, e)
	}
	return err
}

// mapping is a range of addresses.
type mapping struct {
	begin, end uintptr
	code       bool
}

// program returns the mappings of this program that it can't write. There are none without /proc.
var program = sync.OnceValues(func() ([]mapping, error) {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return nil, nil
	}
	file, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return nil, fmt.Errorf("file of the program: %w", err)
	}
	return unwritable(string(maps), file), nil
})

// unwritable returns the mappings of file in /proc/self/maps that can't be written.
//
//	00400000-00ea1000 r-xp 00000000 fe:00 9994361     /usr/bin/remora
func unwritable(maps, file string) (all []mapping) {
	for line := range strings.Lines(maps) {
		var m mapping
		var mode string
		n, _ := fmt.Sscanf(line, "%x-%x %s", &m.begin, &m.end, &mode)
		if n == 3 && len(mode) == 4 && mode[1] == '-' && strings.HasSuffix(line, " "+file+"\n") {
			m.code = mode[2] == 'x'
			all = append(all, m)
		}
	}
	return all
}

// Bits of a page in /proc/self/pagemap. Others, such as that of a page that is not present and new to the kernel, do not matter.
const (
	present = 1 << 63
	swapped = 1 << 62
	ofFile  = 1 << 61 // it is the file's, or shared
)

// wasWritten reports whether a page with this state differs from the file.
func wasWritten(state uint64) bool { return state&(present|swapped) != 0 && state&ofFile == 0 }

// state returns how many bytes are resident, and whether a page was written: the changes of a loader or a debugger are not
// in the file. pages is /proc/self/pagemap, which has 8 bytes for each page.
func (m mapping) state(pages *os.File) (resident int, written bool, err error) {
	size := os.Getpagesize()
	states := make([]byte, int(m.end-m.begin)/size*8)
	if _, err := pages.ReadAt(states, int64(m.begin)/int64(size)*8); err != nil {
		return 0, false, fmt.Errorf("states of the program's pages: %w", err)
	}
	for ; len(states) > 0; states = states[8:] {
		state := binary.NativeEndian.Uint64(states)
		if state&present != 0 {
			resident += size
		}
		written = written || wasWritten(state)
	}
	return resident, written, nil
}

func (m mapping) release() error {
	if _, _, errno := syscall.Syscall(syscall.SYS_MADVISE, m.begin, m.end-m.begin, syscall.MADV_DONTNEED); errno != 0 {
		return fmt.Errorf("madvise: %w", errno)
	}
	return nil
}
