package child

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/freeport"
	"github.com/remora-proxy/remora/internal/must"
)

func TestOutput(t *testing.T) {
	out, err := Output(t.Context(), "/bin/sh", "-c", "echo well; echo beside >&2")
	if err != nil || string(out) != "well\n" {
		t.Errorf("%q, %v", out, err)
	}
	if _, err := Output(t.Context(), "/bin/sh", "-c", "echo so; echo why >&2; exit 3"); err == nil ||
		!strings.Contains(err.Error(), "so\nwhy") {
		t.Error(err)
	}
	if _, err := Output(t.Context(), "/no/such/program"); err == nil {
		t.Error("it is not there, and it ran")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Output(ctx, "/bin/sleep", "600"); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestProcessEnds checks that Check and Await return the end of the log.
func TestProcessEnds(t *testing.T) {
	g := &Group{Dir: t.TempDir()}
	defer g.Stop()
	p, err := g.Start([]string{"REASON=no reason"}, "fish", "/bin/sh", "-c", "echo $REASON; exit 3")
	if err != nil {
		t.Fatal(err)
	}
	<-p.done
	never := func(context.Context) error { return errors.New("never") }
	for what, err := range map[string]error{"Check": g.Check(), "Await": Await(t.Context(), p, "a fish", never)} {
		if err == nil || !strings.Contains(err.Error(), "fish") || !strings.Contains(err.Error(), "no reason") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestWait(t *testing.T) {
	g := &Group{} // without logs
	defer g.Stop()
	if _, err := g.Start(nil, "stone", "/bin/sleep", "600"); err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := g.Wait(over); err != nil {
		t.Error(err)
	}
	if _, err := g.Start(nil, "fish", "/bin/sh", "-c", "exit 3"); err != nil {
		t.Fatal(err)
	}
	if err := g.Wait(t.Context()); err == nil || err.Error() != "fish: exit status 3" {
		t.Error(err)
	}
}

func TestStop(t *testing.T) {
	g := &Group{Dir: t.TempDir()}
	p, err := g.Start(nil, "fish", "/bin/sleep", "600")
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Check(); err != nil || p.PID() <= 0 {
		t.Errorf("%v, process %d", err, p.PID())
	}
	g.Stop()
	select {
	case <-p.done:
	default:
		t.Error("Stop returned before the process had ended")
	}
	g.Stop()
}

// TestStopKills checks that a process that ignores SIGTERM is killed, with its descendants.
func TestStopKills(t *testing.T) {
	g := &Group{Dir: t.TempDir()}
	ln := must.Listen(t)
	ln.(*net.TCPListener).SetDeadline(time.Now().Add(20 * time.Second))
	// The worker holds the connection of its standard input until it ends.
	p, err := g.Start(nil, "fish", "/bin/bash", "-c", "trap '' TERM; sleep 600 <>/dev/tcp/${0/:/\\/} & wait; sleep 600", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	worker, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer worker.Close()
	g.Stop()
	select {
	case <-p.done:
	default:
		t.Error("Stop returned before the process had ended")
	}
	worker.SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, err := worker.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the worker goes on")
	}
}

func TestListens(t *testing.T) {
	ln := must.Listen(t)
	if err := Listens(ln.Addr().String())(t.Context()); err != nil {
		t.Error(err)
	}
	addr, release, err := freeport.Refusing()
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if Listens(addr)(t.Context()) == nil {
		t.Error("no error although nothing listens")
	}
}
