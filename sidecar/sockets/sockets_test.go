package sockets

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/internal/freeport"
	"github.com/remora-proxy/remora/proxy/reactor"
)

// TestTake: a listener takes the socket at its address, however that is spelled, and those at parts of it.
// It binds beside wider ones, which stay. It is refused where somebody else listens.
func TestTake(t *testing.T) {
	dir := t.TempDir()
	addrs, release, err := freeport.Loopback(1)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	_, port, _ := net.SplitHostPort(addrs[0])
	in := strings.NewReplacer("PORT", port, "DIR", dir).Replace
	for _, c := range []struct {
		open  string
		taken []string // addresses in turn
		want  []int    // how many sockets each has
		left  int
	}{
		{"127.0.0.1:PORT", []string{"127.0.0.1:PORT"}, []int{1}, 0},
		{"127.0.0.1:PORT", []string{"localhost:PORT"}, []int{1}, 0},
		{"127.0.0.1:PORT", []string{"0.0.0.0:PORT"}, []int{2}, 0},
		{"127.0.0.1:PORT 127.0.0.2:PORT", []string{"0.0.0.0:PORT"}, []int{3}, 0},
		{"0.0.0.0:PORT", []string{"127.0.0.1:PORT", "127.0.0.2:PORT"}, []int{1, 1}, 1},
		{"127.0.0.1:PORT", []string{"127.0.0.2:PORT"}, []int{1}, 1},
		{"127.0.0.1:PORT", []string{"127.0.0.1:0"}, []int{1}, 1},
		{"unix:DIR/a", []string{"unix:DIR/../" + filepath.Base(dir) + "/a", "unix:DIR/b"}, []int{1, 1}, 0},
	} {
		open := Open{}
		for _, address := range strings.Fields(in(c.open)) {
			open[address] = bind(t, address)
		}
		for i, address := range c.taken {
			sockets, err := open.Take(in(address), 0)
			if err != nil || len(sockets) != c.want[i] {
				t.Errorf("%s, then %s: %d sockets, %v; want %d", c.open, address, len(sockets), err, c.want[i])
			}
			for _, ln := range sockets {
				ln.Close()
			}
		}
		if len(open) != c.left {
			t.Errorf("%s, then %s: %d left, want %d", c.open, c.taken, len(open), c.left)
		}
		open.Close()
	}
	taken := bind(t, in("127.0.0.1:PORT"))
	defer taken.Close()
	for _, open := range []Open{{}, {"other": bind(t, "127.0.0.1:0")}} {
		if _, err := open.Take(in("0.0.0.0:PORT"), 0); err == nil || !strings.Contains(err.Error(), "address already in use") {
			t.Errorf("beside a socket of another process: %v", err)
		}
		open.Close()
	}
}

func bind(t *testing.T, address string) net.Listener {
	t.Helper()
	ln, err := reactor.Bind(address)
	if err != nil {
		t.Fatal(fmt.Errorf("%s: %w", address, err))
	}
	return ln
}
