package main

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/must"
)

func TestTogether(t *testing.T) {
	ln := must.Listen(t)
	ln.(*net.TCPListener).SetDeadline(time.Now().Add(20 * time.Second))
	// The program has a connection until it ends.
	script := filepath.Join(t.TempDir(), "script")
	must.WriteFile(t, script, "exec 3<>/dev/tcp/127.0.0.1/$1; exec sleep 600")
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := execute(ctx, "together", "/bin/sleep 600", "/bin/bash "+script+" "+port)
		done <- err
	}()
	program, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	program.SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, err := program.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("a program goes on")
	}
}

func TestTogetherEnds(t *testing.T) {
	for program, want := range map[string]string{
		"/bin/false":       "false: exit status 1",
		"/bin/true":        "true: it ended",
		"/no/such/program": "start program: fork/exec /no/such/program: no such file or directory",
		" ":                `command " ": want a program`,
	} {
		if _, err := execute(t.Context(), "together", "/bin/sleep 600", program); err == nil || err.Error() != want {
			t.Errorf("%s: %v", program, err)
		}
	}
}
