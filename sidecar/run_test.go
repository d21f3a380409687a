package sidecar

import (
	"context"
	"errors"
	"os"
	"syscall"
	"testing"
)

// TestSignalsDuringStart: the first signal ends a start without an error, or else drains
// the sidecar that has started. The second ends the process at once.
func TestSignalsDuringStart(t *testing.T) {
	serving := new(Sidecar)
	broken := errors.New("broken")
	for _, c := range []struct {
		name    string
		signals int
		start   func(ctx context.Context) (*Sidecar, error)
		s       *Sidecar
		err     error
		left    int // signals that are left for the sidecar
	}{
		{"none", 0, func(context.Context) (*Sidecar, error) { return serving, nil }, serving, nil, 0},
		{"none, and it fails", 0, func(context.Context) (*Sidecar, error) { return nil, broken }, nil, broken, 0},
		{"in time", 1, func(ctx context.Context) (*Sidecar, error) { <-ctx.Done(); return nil, ctx.Err() }, nil, nil, 0},
		{"too late", 1, func(ctx context.Context) (*Sidecar, error) { <-ctx.Done(); return serving, nil }, serving, nil, 1},
		{"and it fails", 1, func(ctx context.Context) (*Sidecar, error) { <-ctx.Done(); return nil, broken }, nil, broken, 0},
		{"twice", 2, func(context.Context) (*Sidecar, error) { <-t.Context().Done(); return nil, nil }, nil, errInterrupted, 0},
	} {
		signals := make(chan os.Signal, 2)
		for range c.signals {
			signals <- syscall.SIGTERM
		}
		s, err := startUnless(signals, c.start)
		if s != c.s || err != c.err || len(signals) != c.left {
			t.Errorf("%s: %v, %v, %d signals left", c.name, s, err, len(signals))
		}
	}
}
