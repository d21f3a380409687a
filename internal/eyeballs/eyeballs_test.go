package eyeballs

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// attempts is a dial whose outcomes a test decides, by address.
type attempts map[string]chan error

func (a attempts) dial(ctx context.Context, addr string) (net.Conn, error) {
	select {
	case err := <-a[addr]:
		if err != nil {
			return nil, err
		}
		return &conn{addr: addr, closed: make(chan struct{})}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

type conn struct {
	net.Conn
	addr   string
	closed chan struct{}
}

func (c *conn) Close() error { close(c.closed); return nil }

// TestDial: the second address is tried if the first fails or says nothing, and the first connection wins.
func TestDial(t *testing.T) {
	refused := errors.New("refused")
	const silent = "silent"
	for name, c := range map[string]struct {
		first, second any // an error, nil for a connection, or silent
		want          string
	}{
		"first":             {nil, nil, "v4"},
		"first refuses":     {refused, nil, "v6"},
		"first is silent":   {silent, nil, "v6"},
		"both refuse":       {refused, refused, ""},
		"second is silent":  {nil, silent, "v4"},
		"second is refused": {nil, refused, "v4"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // a silent address takes Delay
			a := attempts{"v4": make(chan error, 1), "v6": make(chan error, 1)}
			for addr, outcome := range map[string]any{"v4": c.first, "v6": c.second} {
				if outcome != silent {
					err, _ := outcome.(error)
					a[addr] <- err
				}
			}
			got, err := Dial(t.Context(), []string{"v4", "v6"}, a.dial)
			if c.want == "" {
				if !errors.Is(err, refused) {
					t.Errorf("error %v", err)
				}
				return
			}
			if err != nil || got.(*conn).addr != c.want {
				t.Errorf("%v, %v; want %s", got, err, c.want)
			}
		})
	}
}

// TestDialEnds: the end of the context ends both attempts.
func TestDialEnds(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := Dial(ctx, Both("v4", "v6"), attempts{}.dial); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
}

// TestDialMany: with several silent addresses the next is tried all the same, and connections that come too late are
// closed.
func TestDialMany(t *testing.T) {
	late := make(chan *conn, 2)
	dial := func(ctx context.Context, addr string) (net.Conn, error) {
		c := &conn{addr: addr, closed: make(chan struct{})}
		if addr == "3" {
			return c, nil
		}
		<-ctx.Done() // the end of Dial comes at the same time as the connection
		late <- c
		return c, nil
	}
	got, err := Dial(t.Context(), []string{"1", "2", "3", "4"}, dial)
	if err != nil || got.(*conn).addr != "3" {
		t.Fatalf("%v, %v", got, err)
	}
	for range 2 {
		<-(<-late).closed
	}
}

// TestOrder: each family has its share of the places.
func TestOrder(t *testing.T) {
	for _, c := range []struct {
		addrs string
		n     int
		want  string
	}{
		{"", 3, ""},
		{"1.1.1.1:1", 3, "1.1.1.1:1"},
		{"[::1]:1 [::2]:1 [::3]:1 1.1.1.1:1", 3, "[::1]:1 1.1.1.1:1 [::2]:1"},
		{"1.1.1.1:1 1.1.1.2:1 1.1.1.3:1 [::1]:1", 2, "1.1.1.1:1 [::1]:1"},
		{"[::1]:1 [::2]:1 [::3]:1 [::4]:1", 3, "[::1]:1 [::2]:1 [::3]:1"},
		{"[::1]:1 1.1.1.1:1 1.1.1.2:1 1.1.1.3:1", 9, "[::1]:1 1.1.1.1:1 1.1.1.2:1 1.1.1.3:1"},
	} {
		var addrs []netip.AddrPort
		for _, text := range strings.Fields(c.addrs) {
			addrs = append(addrs, netip.MustParseAddrPort(text))
		}
		var got []string
		for _, a := range Order(addrs, c.n) {
			got = append(got, a.String())
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%d of %s: %s, want %s", c.n, c.addrs, got, c.want)
		}
	}
}
