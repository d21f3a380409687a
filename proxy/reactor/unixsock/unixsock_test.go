package unixsock

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"github.com/remora-proxy/remora/internal/must"
)

func listen(t *testing.T, name string, mode fs.FileMode) *Listener {
	t.Helper()
	l, err := Listen(name, mode)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func exists(t *testing.T, path string) bool {
	t.Helper()
	_, err := os.Lstat(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return err == nil
}

// TestFile: the file has its mode, and is gone after Close, unless another process has it.
func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	for _, mode := range []fs.FileMode{0o600, 0o666, 0o777} {
		l := listen(t, path, mode)
		if info, err := os.Lstat(path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("mode %v, %v; want %v", info.Mode(), err, mode)
		}
		if err := l.Close(); err != nil || exists(t, path) {
			t.Errorf("after Close: %v, file %t", err, exists(t, path))
		}
	}
	l := listen(t, path, 0)
	l.Disown()
	if err := l.Close(); err != nil || !exists(t, path) {
		t.Errorf("after Disown: %v, file %t", err, exists(t, path))
	}
}

// TestStale: a socket of a process that has ended is replaced. One that is in use stays, and so
// does any other file.
func TestStale(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	old := listen(t, path, 0)
	old.Disown()
	if _, err := Listen(path, 0); !errors.Is(err, syscall.EADDRINUSE) || !exists(t, path) {
		t.Errorf("in use: %v, file %t", err, exists(t, path))
	}
	old.Close()
	young := listen(t, path, 0)
	if nc, err := net.Dial("unix", path); err != nil {
		t.Error(err)
	} else {
		nc.Close()
	}
	young.Close()
	must.WriteFile(t, path, "x")
	if _, err := Listen(path, 0); !errors.Is(err, ErrNoSocket) || !exists(t, path) {
		t.Errorf("a file: %v", err)
	}
}

// TestForeign: Close does not remove the socket that another process has put in its place.
func TestForeign(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	first := listen(t, path, 0)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	listen(t, path, 0)
	if err := first.Close(); err != nil || !exists(t, path) {
		t.Errorf("%v, file %t", err, exists(t, path))
	}
}

// TestAdopt: an adopted socket leaves its file until it is its own.
func TestAdopt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	for _, own := range []bool{false, true} {
		first := listen(t, path, 0)
		f, err := first.File()
		if err != nil {
			t.Fatal(err)
		}
		ln, err := net.FileListener(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		second := Adopt(ln.(*net.UnixListener), path)
		first.Disown()
		first.Close()
		if own {
			second.Own()
		}
		if second.Close(); exists(t, path) == own {
			t.Errorf("own %t: file %t", own, exists(t, path))
		}
	}
}

// TestAbstract: an abstract name has no file and is free after Close.
func TestAbstract(t *testing.T) {
	name := "@remora-test-" + filepath.Base(t.TempDir()) + filepath.Base(os.Args[0])
	for range 2 {
		l := listen(t, name, 0o600)
		if _, err := Listen(name, 0); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("in use: %v", err)
		}
		l.Own()
		l.Close()
	}
}

// TestStaleTwice: of two that start at a stale file at the same time one listens, and the other says
// that the address is in use.
func TestStaleTwice(t *testing.T) {
	dir := t.TempDir()
	for i := range 300 {
		path := filepath.Join(dir, strconv.Itoa(i))
		stale := listen(t, path, 0)
		stale.Disown()
		stale.Close()
		var all [2]*Listener
		var errs [2]error
		var both sync.WaitGroup
		for k := range all {
			both.Go(func() { all[k], errs[k] = Listen(path, 0) })
		}
		both.Wait()
		if (errs[0] == nil) == (errs[1] == nil) || !errors.Is(errors.Join(errs[:]...), syscall.EADDRINUSE) {
			t.Fatalf("%d: %v and %v", i, errs[0], errs[1])
		}
		for _, l := range all {
			if l != nil {
				l.Close()
			}
		}
	}
}

// TestLockedDirectory: a process that holds the lock of the directory does not stop Listen for ever.
func TestLockedDirectory(t *testing.T) {
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if err := syscall.Flock(int(dir.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	listen(t, filepath.Join(dir.Name(), "s"), 0)
}
