// Package program gives back memory of the program itself: its code and constants.
package program

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
)

// ReleasePages takes the pages of code and constants out of the process's resident memory. Pages that
// are used again come back from the system's page cache without a read, 16 at a time. The start runs
// the initializers of all packages, so 18 MiB are resident after the start. Without /proc ReleasePages does nothing.
func ReleasePages() error { return release(func(mapping) bool { return true }) }

// ReleaseConstants is ReleasePages for constants only, most of which are the runtime's tables of functions. They are used
// when a stack grows or is scanned: so other work brings other pages, and few come back. Of the code in use most comes back.
func ReleaseConstants() error { return release(func(m mapping) bool { return !m.code }) }

func release(chosen func(mapping) bool) error {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return nil
	}
	states, err := os.Open("/proc/self/pagemap")
	if err != nil {
		return nil
	}
	defer states.Close()
	file, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("file of the program: %w", err)
	}
	for _, m := range unwritable(string(maps), file) {
		if !chosen(m) {
			continue
		}
		written, e := m.written(states)
		if e == nil && !written {
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

// unwritable returns the mappings of file in /proc/self/maps that the program can't write.
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

// ofFile is the bit of a page in /proc/self/pagemap that is the file's, or shared.
const ofFile = 1 << 61

// written reports whether a page was written: the changes of a loader or a debugger are not in the file. pages is
// /proc/self/pagemap, 8 bytes for each page.
func (m mapping) written(pages *os.File) (bool, error) {
	size := uintptr(os.Getpagesize())
	states := make([]byte, (m.end-m.begin)/size*8)
	if _, err := pages.ReadAt(states, int64(m.begin/size*8)); err != nil {
		return false, fmt.Errorf("states of the program's pages: %w", err)
	}
	for ; len(states) > 0; states = states[8:] {
		if state := binary.NativeEndian.Uint64(states); state != 0 && state&ofFile == 0 {
			return true, nil
		}
	}
	return false, nil
}

func (m mapping) release() error {
	if _, _, errno := syscall.Syscall(syscall.SYS_MADVISE, m.begin, m.end-m.begin, syscall.MADV_DONTNEED); errno != 0 {
		return fmt.Errorf("madvise: %w", errno)
	}
	return nil
}
