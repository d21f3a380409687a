package handover

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/must"
)

const timeout = 30 * time.Second

// receive waits for a value from c.
func receive(t *testing.T, c <-chan error) error {
	t.Helper()
	select {
	case err := <-c:
		return err
	case <-time.After(timeout):
		t.Fatal("timeout")
		panic("not reached")
	}
}

// openAt opens a Listener that the end of the test closes.
func openAt(t *testing.T, path string) *Listener {
	t.Helper()
	d, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// socketPath returns a path that is short enough for a socket.
func socketPath(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "handover-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "run", "remora.sock")
}

// connect returns the two ends of a connection.
func connect(t *testing.T) (predecessor, successor *Conn) {
	t.Helper()
	path := socketPath(t)
	d := openAt(t, path)
	successor, err := Dial(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = successor.Close() })
	if predecessor, err = d.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = predecessor.Close() })
	for _, c := range []*Conn{predecessor, successor} {
		_ = c.SetDeadline(time.Now().Add(timeout))
		if c.Peer() != os.Getpid() {
			t.Errorf("the peer is %d", c.Peer())
		}
	}
	return predecessor, successor
}

// listen opens n listening sockets.
func listen(t *testing.T, n int) (all map[string]net.Listener, addresses []string) {
	t.Helper()
	all = make(map[string]net.Listener)
	for range n {
		ln := must.Listen(t)
		all[ln.Addr().String()] = ln
		addresses = append(addresses, ln.Addr().String())
	}
	return all, addresses
}

func asConns(sockets map[string]net.Listener) map[string]syscall.Conn {
	all := make(map[string]syscall.Conn)
	for address, ln := range sockets {
		all[address] = ln.(syscall.Conn)
	}
	return all
}

// TestSockets: after the predecessor has closed a socket, the successor accepts its
// queued connections. A blocked Accept of either process returns.
func TestSockets(t *testing.T) {
	predecessor, successor := connect(t)
	sockets, addresses := listen(t, 3)
	if err := predecessor.Offer(Offer{Restarts: 7, Sockets: addresses, Parked: "there"}, asConns(sockets)); err != nil {
		t.Fatal(err)
	}
	offer, got, err := successor.Receive()
	if err != nil || len(got) != 3 || offer.Restarts != 7 || offer.Parked != "there" {
		t.Fatalf("%+v, %d sockets, %v", offer, len(got), err)
	}
	for i, address := range addresses {
		accepted := make(chan error, 1)
		go func() { _, err := got[address].Accept(); accepted <- err }()
		if i > 0 { // the predecessor accepts too
			closed := make(chan error, 1)
			go func() { _, err := sockets[address].Accept(); closed <- err }()
			sockets[address].Close()
			if err := receive(t, closed); !errors.Is(err, net.ErrClosed) {
				t.Errorf("the predecessor's accept ended with %v", err)
			}
		}
		sockets[address].Close()
		c := must.Dial(t, "tcp", address)
		c.Close()
		if err := receive(t, accepted); err != nil {
			t.Errorf("the successor's accept ended with %v", err)
		}
		got[address].Close()
	}
}

// TestWords: a word out of order is an error, and so is the end of the connection.
func TestWords(t *testing.T) {
	predecessor, successor := connect(t)
	for _, w := range []Word{Ready, Serving} {
		if err := successor.Say(w); err != nil {
			t.Fatal(err)
		}
	}
	if err := predecessor.Hear(Ready); err != nil {
		t.Error(err)
	}
	if err := predecessor.Hear(Released); !errors.Is(err, ErrProtocol) {
		t.Errorf("another word: %v", err)
	}
	successor.Close()
	if err := predecessor.Hear(Serving); !errors.Is(err, ErrEnded) {
		t.Errorf("the end of the other process: %v", err)
	}
}

// TestReceiveErrors: an invalid offer is an error, and leaves no socket open.
func TestReceiveErrors(t *testing.T) {
	sockets, addresses := listen(t, 1)
	newer, err := json.Marshal(Offer{Version: Version + 1})
	if err != nil {
		t.Fatal(err)
	}
	missing, err := json.Marshal(Offer{Version: Version, Sockets: addresses})
	if err != nil {
		t.Fatal(err)
	}
	for name, say := range map[string]func(c *Conn) error{
		"not JSON":       func(c *Conn) error { return c.Say("{") },
		"version":        func(c *Conn) error { return c.Say(Word(newer)) },
		"too long":       func(c *Conn) error { return c.Say(Word(strings.Repeat(" ", maxMessage+1))) },
		"no socket":      func(c *Conn) error { return errors.Join(c.Say(Word(missing)), c.Say("a")) },
		"a socket first": func(c *Conn) error { return c.sendSocket(sockets[addresses[0]].(syscall.Conn)) },
	} {
		predecessor, successor := connect(t)
		if err := say(predecessor); err != nil {
			t.Fatal(err)
		}
		if _, _, err := successor.Receive(); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %v", name, err)
		}
	}
	predecessor, _ := connect(t)
	long := Offer{Parked: strings.Repeat("x", maxMessage)}
	if err := predecessor.Offer(long, nil); !errors.Is(err, ErrProtocol) {
		t.Errorf("an offer that is too long: %v", err)
	}
}

// TestNames: an offer has as many host names as fit.
func TestNames(t *testing.T) {
	addrs := []string{"10.0.0.1", "fd00::1"}
	few, many := map[string][]string{"a.test": addrs}, make(map[string][]string)
	for i := range 10_000 {
		many[fmt.Sprintf("%d.test", i)] = addrs
	}
	for _, names := range []map[string][]string{few, many} {
		predecessor, successor := connect(t)
		if err := predecessor.Offer(Offer{Names: names}, nil); err != nil {
			t.Fatal(err)
		}
		offer, _, err := successor.Receive()
		if err != nil || len(offer.Names) < min(len(names), 500) {
			t.Errorf("%d of %d names, %v", len(offer.Names), len(names), err)
		}
		for host, got := range offer.Names {
			if !slices.Equal(got, addrs) {
				t.Fatalf("%s: %v", host, got)
			}
		}
	}
}

// TestNamesInLongOffers: names get only the space that the rest of an offer leaves.
func TestNamesInLongOffers(t *testing.T) {
	names := map[string][]string{"a.test": {"10.0.0.1"}}
	const message = `{"version":1,"restarts":0,"sockets":null,"parked":""}`
	most := maxMessage - len(message)
	fits := most - len(`,"names":{"a.test":["10.0.0.1"]}`) - len(`,,`) // each name and address counts a comma
	for parked, want := range map[int]int{fits: 1, fits + 1: 0, most: 0} {
		predecessor, successor := connect(t)
		if err := predecessor.Offer(Offer{Parked: strings.Repeat("x", parked), Names: names}, nil); err != nil {
			t.Fatal(err)
		}
		offer, _, err := successor.Receive()
		if err != nil || len(offer.Names) != want || len(offer.Parked) != parked {
			t.Errorf("beside %d bytes: %d names, %v; want %d", parked, len(offer.Names), err, want)
		}
	}
}

// TestRefuse: the successor gets the reason of a refusal.
func TestRefuse(t *testing.T) {
	predecessor, successor := connect(t)
	if err := predecessor.Refuse(errors.New("not now")); err != nil {
		t.Fatal(err)
	}
	if o, sockets, err := successor.Receive(); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "not now") || sockets != nil {
		t.Errorf("%+v, %d sockets, %v", o, len(sockets), err)
	}
}

// TestRefusalVersion: a successor that does not know refusals must not mistake one
// for an empty offer, and serve beside its predecessor.
func TestRefusalVersion(t *testing.T) {
	predecessor, successor := connect(t)
	if err := predecessor.Refuse(errors.New("not now")); err != nil {
		t.Fatal(err)
	}
	b, err := successor.read()
	if err != nil {
		t.Fatal(err)
	}
	var known struct{ Version int }
	if err := json.Unmarshal(b, &known); err != nil || known.Version == Version {
		t.Errorf("%q has version %d, %v", b, known.Version, err)
	}
}

// TestListener: the last process that opened a path gets the connections, and only that
// process removes the path. Only the user can connect.
func TestListener(t *testing.T) {
	path := socketPath(t)
	if _, err := Dial(t.Context(), path); !errors.Is(err, ErrNobody) {
		t.Errorf("no listener: %v", err)
	}
	first := openAt(t, path)
	second := openAt(t, path)
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	for of, want := range map[string]os.FileMode{path: 0o600, filepath.Dir(path): 0o700} {
		if info, err := os.Stat(of); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", of, info.Mode(), err)
		}
	}
	c, err := Dial(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := second.Accept(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Hear(Ready) }()
	if err := second.Close(); err != nil {
		t.Error(err)
	}
	if err := receive(t, ended); err == nil {
		t.Error("a connection outlived its Listener")
	}
	if _, err := second.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("accept after close: %v", err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the path still exists: %v", err)
	}
}

// TestLeave: Close does not remove a path that was left to another process, and this process has not ended yet.
func TestLeave(t *testing.T) {
	path := socketPath(t)
	d := openAt(t, path)
	successor, err := Dial(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer successor.Close()
	predecessor, err := d.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer predecessor.Close()
	d.Yield()
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if err := predecessor.Say(Ready); err != nil {
		t.Errorf("the connection has ended with its Listener: %v", err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Error(err)
	}
	openAt(t, path)
}

// TestExposed: Listen refuses directories to which other users can write.
func TestExposed(t *testing.T) {
	for name, prepare := range map[string]func(dir string) error{
		"others may write":    func(dir string) error { return errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, 0o777)) },
		"the group may write": func(dir string) error { return errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, 0o770)) },
		"a link":              func(dir string) error { return os.Symlink(filepath.Dir(dir), dir) },
	} {
		path := socketPath(t)
		if err := prepare(filepath.Dir(path)); err != nil {
			t.Fatal(err)
		}
		if d, err := Listen(path); !errors.Is(err, ErrExposed) {
			t.Errorf("%s: %v, %v", name, d, err)
		}
	}
}

// TestOwner: a directory belongs to the user or to root, and not to another user.
func TestOwner(t *testing.T) {
	dir, owner := t.TempDir(), os.Geteuid()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if owner == 0 {
		owner = 7
		if err := os.Chown(dir, owner, -1); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		dir  string
		user int
		want error
	}{
		{dir, owner, nil}, {dir, owner + 1, ErrExposed}, {dir, 0, ErrExposed}, {"/", owner, nil}, {dir + "/none", owner, os.ErrNotExist},
	} {
		if err := checkDirectory(c.dir, c.user); !errors.Is(err, c.want) {
			t.Errorf("%s for user %d: %v, want %v", c.dir, c.user, err, c.want)
		}
	}
}

// TestCloseWhileAccepting: a connection that arrives as the Listener closes ends with it.
func TestCloseWhileAccepting(t *testing.T) {
	path := socketPath(t)
	d := openAt(t, path)
	d.closed = true // Close has seen no connection yet
	c, err := Dial(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	accepted := make(chan error, 1)
	go func() { _, err := d.Accept(); accepted <- err }()
	if err := c.Hear(Ready); !errors.Is(err, ErrEnded) {
		t.Errorf("the connection: %v", err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if err := receive(t, accepted); !errors.Is(err, net.ErrClosed) {
		t.Errorf("accept: %v", err)
	}
}

// TestCloseBesideAccept: whichever of both comes first, a connection ends with its Listener.
func TestCloseBesideAccept(t *testing.T) {
	for range 20 {
		path := socketPath(t)
		d := openAt(t, path)
		closed, accepted := make(chan error, 1), make(chan error, 1)
		d.mu.Lock()
		go func() { closed <- d.Close() }()
		c, err := Dial(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		go func() { _, err := d.Accept(); accepted <- err }()
		eventually.True(t, "both to wait for the lock", func() bool {
			stacks := make([]byte, 1<<20)
			waiting := 0
			for stack := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
				if strings.Contains(stack, "sync.(*Mutex).Lock") && strings.Contains(stack, ".(*Listener).") {
					waiting++
				}
			}
			return waiting == 2
		})
		d.mu.Unlock()
		_ = c.SetDeadline(time.Now().Add(timeout))
		if err := c.Hear(Ready); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("the connection: %v", err)
		}
		_ = receive(t, accepted)
		if err := receive(t, closed); err != nil {
			t.Error(err)
		}
		_ = c.Close()
	}
}

// TestListenFails: what Listen has made is removed if the path can't be replaced.
func TestListenFails(t *testing.T) {
	path := socketPath(t)
	if err := os.MkdirAll(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if d, err := Listen(path); err == nil {
		_ = d.Close()
		t.Error("a directory was replaced")
	}
	left, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(left) != 1 {
		t.Errorf("%v is left, %v", left, err)
	}
}

// TestOutlive: Outlive returns at the end of the other process, and of its context.
func TestOutlive(t *testing.T) {
	predecessor, successor := connect(t)
	var ended atomic.Bool
	go func() {
		for range 1000 { // meanwhile Outlive would return
			runtime.Gosched()
		}
		ended.Store(true)
		predecessor.Close()
	}()
	if successor.Outlive(t.Context()); !ended.Load() {
		t.Error("it returned before the end of the other process")
	}
	_, successor = connect(t)
	_ = successor.SetDeadline(time.Time{})
	ctx, cancel := context.WithCancel(t.Context())
	returned := make(chan error, 1)
	go func() { successor.Outlive(ctx); returned <- nil }()
	cancel()
	_ = receive(t, returned)
	if err := successor.Say(Ready); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the connection is still open: %v", err)
	}
}

// TestStraySockets: a socket that arrives instead of a word is closed.
func TestStraySockets(t *testing.T) {
	predecessor, successor := connect(t)
	sockets, addresses := listen(t, 1)
	before := descriptors(t)
	for range 3 {
		if err := predecessor.sendSocket(sockets[addresses[0]].(syscall.Conn)); err != nil {
			t.Fatal(err)
		}
		if err := successor.Hear(Released); !errors.Is(err, ErrProtocol) {
			t.Errorf("%v", err)
		}
	}
	if n := descriptors(t); n > before { // descriptors of earlier tests may have been closed
		t.Errorf("%d descriptors are open, before %d", n, before)
	}
}

// descriptors returns the number of open descriptors of this process.
func descriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// TestStaleSocket: a process can open the path of a process that was killed, and removes no socket of another one.
func TestStaleSocket(t *testing.T) {
	path := socketPath(t)
	d := openAt(t, path)
	if err := d.ln.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Dial(t.Context(), path); !errors.Is(err, ErrNobody) {
		t.Errorf("%v", err)
	}
	temporary := fmt.Sprintf("%s.%d", path, os.Getpid()) // of a process with this ID that was killed before its Listen had ended
	must.WriteFile(t, temporary, "")
	d = openAt(t, path)
	if _, err := Dial(t.Context(), path); err != nil {
		t.Error(err)
	}
	must.WriteFile(t, temporary, "") // of a process in another container, which has the same ID
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(temporary); err != nil {
		t.Errorf("Close has removed what belongs to another process: %v", err)
	}
}
