// Package unixsock listens on Unix sockets with a file: it replaces the file of a process that
// has ended, and removes its own at the end, unless another process has taken the socket over.
package unixsock

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// dialTimeout limits the question whether a process listens at an existing file.
const dialTimeout = time.Second

// lockTimeout limits the wait for another process that makes a socket in the same directory, or
// holds the directory's lock for a reason of its own. lockRetry is the pause between two tries.
const (
	lockTimeout = 2 * time.Second
	lockRetry   = time.Millisecond
)

// ErrNoSocket reports a file that is no socket where one should be made.
var ErrNoSocket = errors.New("unixsock: the file exists and is no socket")

// Listener is a listening Unix socket.
type Listener struct {
	*net.UnixListener
	path string // empty for an abstract name

	mu       sync.Mutex
	file     os.FileInfo // the socket's own file; nil if Close must not remove it
	released bool
}

// Listen listens at name, a path or an abstract name with @. mode is the mode of the file; 0 means
// that the umask decides. A socket that nobody listens at is replaced.
func Listen(name string, mode fs.FileMode) (*Listener, error) {
	isAbstract := strings.HasPrefix(name, "@")
	if !isAbstract {
		// Until this socket listens another process would take its file for a stale one.
		defer lock(filepath.Dir(name))()
		if err := removeStale(name); err != nil {
			return nil, err
		}
	}
	lc := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		if mode == 0 || isAbstract {
			return nil
		}
		// The file begins with no more permissions than this mode (unix(7)), so nobody else can
		// connect before the change below. A system that refuses this has only that change.
		return raw.Control(func(fd uintptr) { _ = syscall.Fchmod(int(fd), uint32(mode)) })
	}}
	ln, err := lc.Listen(context.Background(), "unix", name)
	if err != nil {
		return nil, err
	}
	l := Adopt(ln.(*net.UnixListener), name)
	if !isAbstract && mode != 0 {
		if err := os.Chmod(name, mode); err != nil {
			return nil, errors.Join(err, os.Remove(name), ln.Close())
		}
	}
	l.Own()
	return l, nil
}

// lock locks the directory for one Listen at a time. Any user who may read the directory can hold
// the lock, so after lockTimeout Listen goes on without it.
func lock(path string) (unlock func()) {
	dir, err := os.Open(path)
	if err != nil {
		return func() {}
	}
	for end := time.Now().Add(lockTimeout); time.Now().Before(end); time.Sleep(lockRetry) {
		if syscall.Flock(int(dir.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != syscall.EWOULDBLOCK {
			break
		}
	}
	return func() { dir.Close() }
}

// Adopt returns the Listener of a socket at name that another process has opened. Close leaves its
// file until Own.
func Adopt(ln *net.UnixListener, name string) *Listener {
	ln.SetUnlinkOnClose(false)
	l := &Listener{UnixListener: ln}
	if !strings.HasPrefix(name, "@") {
		l.path = name
	}
	return l
}

// Own makes Close remove the file that is at the path now.
func (l *Listener) Own() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.path != "" {
		l.file, _ = os.Lstat(l.path)
	}
}

// SetMode sets the mode of the file. 0 leaves it as it is, and an abstract name has none.
func (l *Listener) SetMode(mode fs.FileMode) error {
	if l.path == "" || mode == 0 {
		return nil
	}
	return os.Chmod(l.path, mode)
}

// SameName reports whether two names, as of Listen, are those of one socket, if there is one.
func SameName(a, b string) bool {
	if a == b {
		return true
	}
	first, err := os.Lstat(a)
	if err != nil {
		return false
	}
	second, err := os.Lstat(b)
	return err == nil && os.SameFile(first, second)
}

// Disown makes Close leave the file to the process that has taken the socket over.
func (l *Listener) Disown() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.file = nil
}

// Release closes the socket, of which the caller has a duplicate. The file stays until Close.
func (l *Listener) Release() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.released = true
	return l.UnixListener.Close()
}

// RemoveFile removes the file as Close does. The socket still has the connections that wait there.
func (l *Listener) RemoveFile() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return
	}
	if now, err := os.Lstat(l.path); err == nil && os.SameFile(now, l.file) {
		_ = os.Remove(l.path)
	}
	l.file = nil
}

// Close closes the socket, and first removes its file if that is still its own.
func (l *Listener) Close() error {
	l.RemoveFile()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.released {
		return nil
	}
	return l.UnixListener.Close()
}

// removeStale removes the socket at path if nobody listens there.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return refused(path, ErrNoSocket)
	}
	nc, err := net.DialTimeout("unix", path, dialTimeout)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return os.Remove(path)
	case err == nil:
		_ = nc.Close()
	case !errors.Is(err, syscall.EAGAIN): // its queue of connections is full
		return err
	}
	return refused(path, syscall.EADDRINUSE)
}

// refused returns an error as package net does.
func refused(path string, why error) error {
	return &net.OpError{Op: "listen", Net: "unix", Addr: &net.UnixAddr{Name: path, Net: "unix"}, Err: why}
}
