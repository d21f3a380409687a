package accesslog

import (
	"fmt"
	"os"
	"syscall"
)

// Paths that are no files.
const (
	Stdout = "stdout"
	Stderr = "stderr"
)

// open opens what a path stands for, to append to.
func open(path string) (*os.File, error) {
	switch path {
	case Stdout:
		return duplicate(os.Stdout)
	case Stderr:
		return duplicate(os.Stderr)
	}
	// Without waiting for the reader of a pipe: one that has none is an error.
	return os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY|syscall.O_NONBLOCK, 0o640)
}

// duplicate is another descriptor of f. A reader that is gone then makes an error,
// and does not end the process, as it does for descriptors 1 and 2.
func duplicate(f *os.File) (*os.File, error) {
	fd, err := syscall.Dup(int(f.Fd()))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	syscall.CloseOnExec(fd)
	return os.NewFile(uintptr(fd), f.Name()), nil
}
