package handover

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const patience = 30 * time.Second

// receive waits for c.
func receive(t *testing.T, c <-chan error) error {
	t.Helper()
	select {
	case err := <-c:
		return err
	case <-time.After(patience):
		t.Fatal("waited in vain")
		panic("not reached")
	}
}

// openAt is a door that is closed at the end of the test.
func openAt(t *testing.T, path string) *Door {
	t.Helper()
	d, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// somewhere is a path that is short enough for a socket.
func somewhere(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "handover-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "run", "door.sock")
}

// meet is a conversation: its two ends.
func meet(t *testing.T) (predecessor, successor *Conn) {
	t.Helper()
	path := somewhere(t)
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
		_ = c.SetDeadline(time.Now().Add(patience))
		if c.Peer() != os.Getpid() {
			t.Errorf("the peer is %d", c.Peer())
		}
	}
	return predecessor, successor
}

// listen opens n sockets.
func listen(t *testing.T, n int) (all map[string]net.Listener, addresses []string) {
	t.Helper()
	all = make(map[string]net.Listener)
	for range n {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ln.Close() })
		all[ln.Addr().String()] = ln
		addresses = append(addresses, ln.Addr().String())
	}
	return all, addresses
}

// TestSockets: what is queued at a socket when its process closes it is accepted by
// the other, and a process that waits at it is woken.
func TestSockets(t *testing.T) {
	predecessor, successor := meet(t)
	sockets, addresses := listen(t, 3)
	if err := predecessor.Offer(Offer{Restarts: 7, Sockets: addresses, Parked: "there"}, sockets); err != nil {
		t.Fatal(err)
	}
	offer, got, err := successor.Receive()
	if err != nil || len(got) != 3 || offer.Restarts != 7 || offer.Parked != "there" {
		t.Fatalf("%+v, %d sockets, %v", offer, len(got), err)
	}
	for i, address := range addresses {
		waits := make(chan error, 1)
		go func() { _, err := got[address].Accept(); waits <- err }()
		if i > 0 { // both wait
			both := make(chan error, 1)
			go func() { _, err := sockets[address].Accept(); both <- err }()
			sockets[address].Close()
			if err := receive(t, both); !errors.Is(err, net.ErrClosed) {
				t.Errorf("the predecessor's accept ended with %v", err)
			}
		}
		sockets[address].Close()
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		if err := receive(t, waits); err != nil {
			t.Errorf("the successor's accept ended with %v", err)
		}
		got[address].Close()
	}
}

// TestWords: what is said in order is heard, what is not is an error, and so is the
// end.
func TestWords(t *testing.T) {
	predecessor, successor := meet(t)
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

// TestReceiveRefuses: an offer that can't be understood is an error, and leaves no
// socket open.
func TestReceiveRefuses(t *testing.T) {
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
		"not JSON":     func(c *Conn) error { return c.Say("{") },
		"version":      func(c *Conn) error { return c.Say(Word(newer)) },
		"too long":     func(c *Conn) error { return c.Say(Word(strings.Repeat(" ", maxMessage+1))) },
		"no socket":    func(c *Conn) error { return errors.Join(c.Say(Word(missing)), c.Say("a")) },
		"never a word": func(c *Conn) error { return c.pass(sockets[addresses[0]]) },
	} {
		predecessor, successor := meet(t)
		if err := say(predecessor); err != nil {
			t.Fatal(err)
		}
		if _, _, err := successor.Receive(); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %v", name, err)
		}
	}
	predecessor, _ := meet(t)
	long := Offer{Parked: strings.Repeat("x", maxMessage)}
	if err := predecessor.Offer(long, nil); !errors.Is(err, ErrProtocol) {
		t.Errorf("an offer that nobody can read: %v", err)
	}
}

// TestNames: of the addresses of host names as many are passed on as there is room for.
func TestNames(t *testing.T) {
	addrs := []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")}
	few, many := map[string][]netip.Addr{"a.test": addrs}, make(map[string][]netip.Addr)
	for i := range 10_000 {
		many[fmt.Sprintf("%d.test", i)] = addrs
	}
	for _, names := range []map[string][]netip.Addr{few, many} {
		predecessor, successor := meet(t)
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

// TestNamesLeaveRoom: names take what the rest of a message leaves, be it nothing.
func TestNamesLeaveRoom(t *testing.T) {
	names := map[string][]netip.Addr{"a.test": {netip.MustParseAddr("10.0.0.1")}}
	const message = `{"version":1,"restarts":0,"sockets":null,"parked":""}`
	most := maxMessage - len(message)
	fits := most - len(`,"names":{"a.test":["10.0.0.1"]}`) - len(`,,`) // each name and address counts a comma
	for parked, want := range map[int]int{fits: 1, fits + 1: 0, most: 0} {
		predecessor, successor := meet(t)
		if err := predecessor.Offer(Offer{Parked: strings.Repeat("x", parked), Names: names}, nil); err != nil {
			t.Fatal(err)
		}
		offer, _, err := successor.Receive()
		if err != nil || len(offer.Names) != want || len(offer.Parked) != parked {
			t.Errorf("beside %d bytes: %d names, %v; want %d", parked, len(offer.Names), err, want)
		}
	}
}

// TestRefuse: the other process hears why it gets nothing.
func TestRefuse(t *testing.T) {
	predecessor, successor := meet(t)
	if err := predecessor.Refuse(errors.New("not now")); err != nil {
		t.Fatal(err)
	}
	if o, sockets, err := successor.Receive(); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "not now") || sockets != nil {
		t.Errorf("%+v, %d sockets, %v", o, len(sockets), err)
	}
}

// TestRefuseIsNoOffer: a successor that knows of no refusals does not take one for an
// offer of nothing, and begin to serve beside its predecessor.
func TestRefuseIsNoOffer(t *testing.T) {
	predecessor, successor := meet(t)
	if err := predecessor.Refuse(errors.New("not now")); err != nil {
		t.Fatal(err)
	}
	b, err := successor.read()
	if err != nil {
		t.Fatal(err)
	}
	var known struct{ Version int }
	if err := json.Unmarshal(b, &known); err != nil || known.Version == Version {
		t.Errorf("%q is one of version %d, %v", b, known.Version, err)
	}
}

// TestDoor: there is one process at a path, the last that opened it, which alone
// takes it away; nobody else's user can come.
func TestDoor(t *testing.T) {
	path := somewhere(t)
	if _, err := Dial(t.Context(), path); !errors.Is(err, ErrNobody) {
		t.Errorf("no door: %v", err)
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
	cut := make(chan error, 1)
	go func() { cut <- c.Hear(Ready) }()
	if err := second.Close(); err != nil {
		t.Error(err)
	}
	if err := receive(t, cut); err == nil {
		t.Error("who was in goes on after the door has closed")
	}
	if _, err := second.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("accept after close: %v", err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the door is left: %v", err)
	}
}

// TestLeave: a door that was left to another process is not taken away.
func TestLeave(t *testing.T) {
	path := somewhere(t)
	d := openAt(t, path)
	d.Leave()
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Error(err)
	}
	openAt(t, path)
}

// TestExposed: there is no door where others could put theirs.
func TestExposed(t *testing.T) {
	for name, prepare := range map[string]func(dir string) error{
		"others may write":    func(dir string) error { return errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, 0o777)) },
		"the group may write": func(dir string) error { return errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, 0o770)) },
		"a link":              func(dir string) error { return os.Symlink(filepath.Dir(dir), dir) },
	} {
		path := somewhere(t)
		if err := prepare(filepath.Dir(path)); err != nil {
			t.Fatal(err)
		}
		if d, err := Open(path); !errors.Is(err, ErrExposed) {
			t.Errorf("%s: %v, %v", name, d, err)
		}
	}
}

// TestOutlive: the end of the other process is noticed, and so is one's own.
func TestOutlive(t *testing.T) {
	predecessor, successor := meet(t)
	over := make(chan struct{})
	go func() { successor.Outlive(t.Context()); close(over) }()
	predecessor.Close()
	<-over
	_, successor = meet(t)
	ctx, cancel := context.WithCancel(t.Context())
	over = make(chan struct{})
	go func() { successor.Outlive(ctx); close(over) }()
	cancel()
	<-over
	if err := successor.Say(Ready); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the conversation goes on: %v", err)
	}
}

// TestStraySockets: a socket where a word was to be said is not kept.
func TestStraySockets(t *testing.T) {
	predecessor, successor := meet(t)
	sockets, addresses := listen(t, 1)
	before := descriptors(t)
	for range 3 {
		if err := predecessor.pass(sockets[addresses[0]]); err != nil {
			t.Fatal(err)
		}
		if err := successor.Hear(Released); !errors.Is(err, ErrProtocol) {
			t.Errorf("%v", err)
		}
	}
	if n := descriptors(t); n != before {
		t.Errorf("%d descriptors are open, before %d", n, before)
	}
}

// descriptors is how many this process has.
func descriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// TestDoorOfTheDead: the socket of a process that was killed is nobody's.
func TestDoorOfTheDead(t *testing.T) {
	path := somewhere(t)
	d := openAt(t, path)
	if err := d.ln.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Dial(t.Context(), path); !errors.Is(err, ErrNobody) {
		t.Errorf("%v", err)
	}
	openAt(t, path)
	if _, err := Dial(t.Context(), path); err != nil {
		t.Error(err)
	}
}
