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

// Errors of this package. What the system reports is passed on as it is.
var (
	// ErrNobody is returned by Dial when no process has opened the door.
	ErrNobody = errors.New("handover: nobody is there")
	// ErrStranger refuses a process of another user.
	ErrStranger = errors.New("handover: the other process is another user's")
	// ErrExposed is returned by Open for a directory in which others could put a
	// door of theirs.
	ErrExposed = errors.New("handover: the directory is not this user's alone to write to")
	// ErrProtocol ends a conversation with a process that says something else
	// than was to be said.
	ErrProtocol = errors.New("handover: unexpected message")
	// ErrRefused is returned by Conn.Receive with the reason of a process that
	// hands over nothing now.
	ErrRefused = errors.New("handover: refused")
	// ErrEnded tells that the other process, or the conversation with it, is over.
	ErrEnded = errors.New("handover: the other process has left; its log may tell why")
)

// network keeps messages apart, so that a descriptor comes with its message.
const network = "unixpacket"

// Door is where successors come. Its methods may be called from any goroutine.
type Door struct {
	ln   *net.UnixListener
	path string
	file os.FileInfo

	mu     sync.Mutex
	closed bool
	left   bool  // path is another process's, or is about to be
	guest  *Conn // the last that was accepted
}

// Open opens the door at path, in the place of one that is there already; its
// directory is made if it is missing. Nobody but this process's user can open it.
func Open(path string) (*Door, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("handover: %w", err)
	}
	if err := exposed(filepath.Dir(path)); err != nil {
		return nil, err
	}
	// Under another name first: there is somebody at path at any time.
	aside := fmt.Sprintf("%s.%d", path, os.Getpid())
	_ = os.Remove(aside) // of a process that had the same number
	ln, err := net.ListenUnix(network, &net.UnixAddr{Name: aside, Net: network})
	if err != nil {
		return nil, fmt.Errorf("handover: %w", err)
	}
	ln.SetUnlinkOnClose(false)
	d := &Door{ln: ln, path: path}
	if err = os.Chmod(aside, 0o600); err == nil {
		err = os.Rename(aside, path)
	}
	if err == nil {
		d.file, err = os.Stat(path)
	}
	if err != nil {
		_ = os.Remove(aside)
		return nil, errors.Join(fmt.Errorf("handover: %w", err), ln.Close())
	}
	return d, nil
}

// exposed is ErrExposed unless dir is a directory of this user, or of root, that
// nobody else can write to.
func exposed(dir string) error {
	info, err := os.Lstat(dir) // a link could be changed after this look
	if err != nil {
		return fmt.Errorf("handover: %w", err)
	}
	owner := info.Sys().(*syscall.Stat_t).Uid
	if !info.IsDir() || info.Mode().Perm()&0o022 != 0 || owner != 0 && owner != uint32(os.Geteuid()) {
		return fmt.Errorf("%w: %s", ErrExposed, dir)
	}
	return nil
}

// Accept waits for a process of the same user. The Conn is the caller's to close.
// The error is net.ErrClosed after Close.
func (d *Door) Accept() (*Conn, error) {
	for {
		uc, err := d.ln.AcceptUnix()
		if err != nil {
			return nil, fmt.Errorf("handover: %w", err)
		}
		c, err := newConn(uc)
		if err != nil {
			continue
		}
		d.mu.Lock()
		d.guest = c
		closed := d.closed
		d.mu.Unlock()
		if closed {
			_ = c.Close()
			continue
		}
		return c, nil
	}
}

// Leave leaves the path to another process, which may open its door there at any
// time: Close does not take it away from then on.
func (d *Door) Leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.left = true
}

// Close closes the door, which cuts off whoever was accepted last, and takes it away
// unless another process has put its own there.
func (d *Door) Close() error {
	d.mu.Lock()
	d.closed = true
	left := d.left
	if d.guest != nil {
		_ = d.guest.Close()
	}
	d.mu.Unlock()
	if now, err := os.Stat(d.path); !left && err == nil && os.SameFile(now, d.file) {
		_ = os.Remove(d.path)
	}
	return d.ln.Close()
}

// Dial goes to the door at path. The Conn is the caller's to close.
func Dial(ctx context.Context, path string) (*Conn, error) {
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

// newConn closes a connection to another user's process.
func newConn(uc *net.UnixConn) (*Conn, error) {
	peer, err := credentials(uc)
	if err == nil && peer.Uid != uint32(os.Geteuid()) {
		err = ErrStranger
	}
	if err != nil {
		return nil, errors.Join(err, uc.Close())
	}
	return &Conn{uc: uc, peer: int(peer.Pid)}, nil
}

// credentials are those of the process at the other end, as the kernel took them
// down (unix(7), SO_PEERCRED).
func credentials(uc *net.UnixConn) (peer *syscall.Ucred, err error) {
	sc, err := uc.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("handover: %w", err)
	}
	var failed error
	err = sc.Control(func(fd uintptr) {
		peer, failed = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	if err = errors.Join(err, failed); err != nil {
		return nil, fmt.Errorf("handover: %w", err)
	}
	return peer, nil
}
