package accesslog

import (
	"fmt"
	"os"
	"syscall"
)

// Paths that name a standard stream of the process.
const (
	Stdout = "stdout"
	Stderr = "stderr"
)

// open opens the file or standard stream that path names, for appending.
func open(path string) (*os.File, error) {
	switch path {
	case Stdout:
		return duplicate(os.Stdout)
	case Stderr:
		return duplicate(os.Stderr)
	}
	// O_NONBLOCK makes a named pipe without a reader an error; the open would wait for one.
	return os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY|syscall.O_NONBLOCK, 0o640)
}

// duplicate returns another descriptor of f. On descriptors 1 and 2 a write without
// a reader would end the process; on another it only fails.
func duplicate(f *os.File) (*os.File, error) {
	fd, err := syscall.Dup(int(f.Fd()))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	syscall.CloseOnExec(fd)
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// isFileOf reports whether both outputs are of one file. A standard stream is so after Reopen, and a file that was not renamed.
func (o *output) isFileOf(other *output) bool {
	a, isFile := o.WriteCloser.(*os.File)
	b, isOtherFile := other.WriteCloser.(*os.File)
	if !isFile || !isOtherFile {
		return false
	}
	one, err := a.Stat()
	two, otherErr := b.Stat()
	return err == nil && otherErr == nil && os.SameFile(one, two)
}
