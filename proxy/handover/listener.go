package handover

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
)

// Errors of this package. Errors of the operating system are wrapped.
var (
	// ErrNobody is returned by Dial if no process listens at the path.
	ErrNobody = errors.New("handover: no process listens")
	// ErrStranger is returned by Dial if the process at the path belongs to another
	// user.
	ErrStranger = errors.New("handover: the process belongs to another user")
	// ErrExposed is returned by Listen for a directory in which other users could
	// put a socket of their own.
	ErrExposed = errors.New("handover: other users can write to the directory")
	// ErrUnsupported is returned by Listen on systems other than Linux.
	ErrUnsupported = errors.New("handover: only Linux has what it takes")
	// ErrProtocol is returned for a message that was not expected.
	ErrProtocol = errors.New("handover: unexpected message")
	// ErrRefused is returned by Conn.Receive, with the reason, if the predecessor
	// can't hand over now.
	ErrRefused = errors.New("handover: refused")
	// ErrEnded is returned if the other process has closed the connection.
	ErrEnded = errors.New("handover: the other process has closed the connection; its log may say why")
)

// network preserves message boundaries, so that a descriptor arrives with its
// message.
const network = "unixpacket"

// Listener is the Unix socket at which a process accepts its successor. Its methods
// may be called from any goroutine.
type Listener struct {
	ln   *net.UnixListener
	path string
	file os.FileInfo

	mu      sync.Mutex
	closed  bool
	yielded bool  // reports whether path belongs to another process, or soon may
	last    *Conn // accepted last
}

// Listen listens at path, and replaces a socket that is already there. It creates the
// directory if it is missing. Only this process's user can connect.
func Listen(path string) (*Listener, error) {
	if !supported {
		return nil, ErrUnsupported
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("handover: %w", err)
	}
	if err := checkDirectory(filepath.Dir(path), os.Geteuid()); err != nil {
		return nil, err
	}
	// Renaming a socket replaces an older one without a gap.
	temporary := fmt.Sprintf("%s.%d", path, os.Getpid())
	_ = os.Remove(temporary) // left over from a process with the same ID
	ln, err := net.ListenUnix(network, &net.UnixAddr{Name: temporary, Net: network})
	if err != nil {
		return nil, fmt.Errorf("handover: %w", err)
	}
	ln.SetUnlinkOnClose(false)
	l := &Listener{ln: ln, path: path}
	if err = os.Chmod(temporary, 0o600); err == nil {
		err = os.Rename(temporary, path)
	}
	if err == nil {
		l.file, err = os.Stat(path)
	}
	if err != nil {
		_ = os.Remove(temporary)
		return nil, errors.Join(fmt.Errorf("handover: %w", err), ln.Close())
	}
	return l, nil
}

// checkDirectory returns ErrExposed unless dir is a directory of the user, or of
// root, to which no other user can write.
func checkDirectory(dir string, user int) error {
	info, err := os.Lstat(dir) // a symbolic link could change after the check
	if err != nil {
		return fmt.Errorf("handover: %w", err)
	}
	owner := info.Sys().(*syscall.Stat_t).Uid
	if !info.IsDir() || info.Mode().Perm()&0o022 != 0 || owner != 0 && owner != uint32(user) {
		return fmt.Errorf("%w: %s", ErrExposed, dir)
	}
	return nil
}

// Accept waits for a process of the same user. The caller must close the Conn. The
// error is net.ErrClosed after Close.
func (l *Listener) Accept() (*Conn, error) {
	for {
		uc, err := l.ln.AcceptUnix()
		if err != nil {
			return nil, fmt.Errorf("handover: %w", err)
		}
		c, err := newConn(uc)
		if err != nil {
			continue
		}
		l.mu.Lock()
		l.last = c
		closed := l.closed
		l.mu.Unlock()
		if closed {
			_ = c.Close()
			continue
		}
		return c, nil
	}
}

// Yield gives the path to another process, which may listen there at any time. From then on Close leaves the path, and
// the Conn that was accepted last: the other process takes its end for the end of this process.
func (l *Listener) Yield() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.yielded = true
}

// Close closes the socket and, unless Yield was called, the Conn that was accepted last. It removes the path unless
// another process's socket is there.
func (l *Listener) Close() error {
	l.mu.Lock()
	l.closed = true
	yielded := l.yielded
	if l.last != nil && !yielded {
		_ = l.last.Close()
	}
	l.mu.Unlock()
	if now, err := os.Stat(l.path); !yielded && err == nil && os.SameFile(now, l.file) {
		_ = os.Remove(l.path)
	}
	return l.ln.Close()
}

// Dial connects to the Listener at path. The caller must close the Conn.
func Dial(ctx context.Context, path string) (*Conn, error) {
	if !supported {
		return nil, ErrNobody
	}
	var dialer net.Dialer
	nc, err := dialer.DialContext(ctx, network, path)
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return nil, ErrNobody
	case err != nil:
		return nil, fmt.Errorf("handover: %w", err)
	}
	return newConn(nc.(*net.UnixConn))
}

// newConn returns an error, and closes uc, if the other process belongs to another
// user. The kernel recorded its credentials at the connect (unix(7), SO_PEERCRED).
func newConn(uc *net.UnixConn) (*Conn, error) {
	var user, process int
	err := control(uc, func(fd int) (err error) {
		user, process, err = peerOf(fd)
		return err
	})
	switch {
	case err != nil:
		return nil, errors.Join(fmt.Errorf("handover: %w", err), uc.Close())
	case user != os.Geteuid():
		return nil, errors.Join(ErrStranger, uc.Close())
	}
	return &Conn{uc: uc, peer: process}, nil
}
