package eyeballs

import (
	"context"
	"errors"
	"net"
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
			got, err := Dial(t.Context(), "v4", "v6", a.dial)
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
	if _, err := Dial(ctx, "v4", "v6", attempts{}.dial); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
}
