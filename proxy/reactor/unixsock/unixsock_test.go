package unixsock

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

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

// modeOf returns the permissions of a file.
func modeOf(t *testing.T, path string) fs.FileMode {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode().Perm()
}

// TestMode: without a mode the umask decides, and SetMode changes it later.
func TestMode(t *testing.T) {
	dir := t.TempDir()
	other, err := net.Listen("unix", filepath.Join(dir, "other"))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	path := filepath.Join(dir, "s")
	l := listen(t, path, 0)
	usual := modeOf(t, other.Addr().String())
	if got := modeOf(t, path); got != usual {
		t.Errorf("without a mode %v, want %v", got, usual)
	}
	for _, c := range []struct{ mode, want fs.FileMode }{{0, usual}, {0o640, 0o640}, {0, 0o640}, {0o777, 0o777}} {
		if err := l.SetMode(c.mode); err != nil || modeOf(t, path) != c.want {
			t.Errorf("after SetMode(%o): %v, %v; want %v", c.mode, err, modeOf(t, path), c.want)
		}
	}
	l.Close()
	if err := l.SetMode(0o600); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without the file: %v", err)
	}
}

// TestModeFromTheBeginning: at no time the file has more permissions than its mode.
func TestModeFromTheBeginning(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	var ended atomic.Bool
	var seen atomic.Int64
	var looker sync.WaitGroup
	looker.Go(func() {
		for !ended.Load() {
			info, err := os.Lstat(path)
			if err != nil {
				continue
			}
			if seen.Add(1); info.Mode().Perm() != 0o600 {
				t.Errorf("the file has mode %v", info.Mode())
				return
			}
		}
	})
	for n := 0; n < 200 || seen.Load() == 0; n++ {
		listen(t, path, 0o600).Close()
	}
	ended.Store(true)
	looker.Wait()
}

// TestSameName: two names of one file name the same socket.
func TestSameName(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink(dir, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	listen(t, filepath.Join(dir, "a"), 0)
	listen(t, filepath.Join(dir, "b"), 0)
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"a", "a", true}, {"a", "link/a", true}, {"link/a", "a", true}, {"a", "b", false}, {"a", "link/b", false},
		{"none", "none", true}, {"none", "a", false}, {"a", "none", false}, {"none", "other", false},
	} {
		if got := SameName(filepath.Join(dir, c.a), filepath.Join(dir, c.b)); got != c.want {
			t.Errorf("%s and %s: %t", c.a, c.b, got)
		}
	}
	if !SameName("@a", "@a") || SameName("@a", "@b") {
		t.Error("abstract names are compared wrongly")
	}
}

// accepts checks that connections that wait at a socket are accepted.
func accepts(t *testing.T, ln net.Listener) {
	t.Helper()
	nc, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	nc.Close()
}

// TestRemoveFile: connections that came before the file was removed are accepted. What is at the path afterwards is not the
// Listener's.
func TestRemoveFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l := listen(t, path, 0)
	nc, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if l.RemoveFile(); exists(t, path) {
		t.Error("the file is there")
	}
	accepts(t, l)
	listen(t, path, 0)
	l.RemoveFile()
	if err := l.Close(); err != nil || !exists(t, path) {
		t.Errorf("%v, file %t", err, exists(t, path))
	}
	if err := l.Close(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("closed twice: %v", err)
	}
}

// TestRelease: the duplicate of a released socket accepts connections, and Close still removes the file.
func TestRelease(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l := listen(t, path, 0)
	f, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	duplicate, err := net.FileListener(f)
	f.Close()
	if err != nil {
		t.Fatal(err)
	}
	defer duplicate.Close()
	if err := l.Release(); err != nil || !exists(t, path) {
		t.Fatalf("%v, file %t", err, exists(t, path))
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the released socket: %v", err)
	}
	nc, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	accepts(t, duplicate)
	if err := l.Close(); err != nil || exists(t, path) {
		t.Errorf("after Close: %v, file %t", err, exists(t, path))
	}
}

// TestUnavailable: a socket stays whose process takes no connection now, or that is of another type. The error says so, as it
// does for a path that can't be.
func TestUnavailable(t *testing.T) {
	dir := t.TempDir()
	ln, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "datagrams"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	must.WriteFile(t, filepath.Join(dir, "file"), "x")
	wants := map[string]error{"datagrams": syscall.EPROTOTYPE, "file/s": syscall.ENOTDIR, "none/s": syscall.ENOENT}
	stay := []string{"datagrams"}
	if runtime.GOOS == "linux" { // other systems refuse a connection that has no place in the queue
		fillQueue(t, filepath.Join(dir, "full"))
		wants["full"], stay = syscall.EADDRINUSE, append(stay, "full")
	}
	for name, want := range wants {
		if _, err := Listen(filepath.Join(dir, name), 0); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
	}
	for _, name := range stay {
		if !exists(t, filepath.Join(dir, name)) {
			t.Errorf("%s is gone", name)
		}
	}
}

// fillQueue listens at path, and connects until no more connections have a place in the queue.
func fillQueue(t *testing.T, path string) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}), syscall.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	for {
		nc, err := net.Dial("unix", path)
		if errors.Is(err, syscall.EAGAIN) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { nc.Close() })
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
		if err := l.SetMode(0o600); err != nil {
			t.Error(err)
		}
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

// TestLockedDirectory: Listen waits for a process that holds the lock of the directory, but not for ever.
func TestLockedDirectory(t *testing.T) {
	locked := func(t *testing.T) *os.File {
		dir, err := os.Open(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { dir.Close() })
		if err := syscall.Flock(int(dir.Fd()), syscall.LOCK_EX); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	synctest.Test(t, func(t *testing.T) {
		dir, began := locked(t), time.Now()
		listen(t, filepath.Join(dir.Name(), "s"), 0)
		if d := time.Since(began); d != lockTimeout {
			t.Errorf("with a lock that is kept, Listen took %s", d)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		dir := locked(t)
		var released atomic.Bool
		time.AfterFunc(lockTimeout/2, func() {
			released.Store(true)
			dir.Close()
		})
		began := time.Now()
		listen(t, filepath.Join(dir.Name(), "s"), 0)
		if d := time.Since(began); !released.Load() || d > lockTimeout/2+lockRetry {
			t.Errorf("with a lock that is released (%t), Listen took %s", released.Load(), d)
		}
	})
}
