package bench

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/lab/load"
)

// compile returns the path of a program of folder floor. It skips the test without a C compiler.
func compile(t *testing.T, program Program) string {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler")
	}
	source, err := os.ReadFile(fmt.Sprintf("floor/%s.c", program)) // which go test notices: it would keep the result otherwise
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), string(program))
	compiler := exec.Command(cc, "-O2", "-Wall", "-Wextra", "-Werror", "-o", path, "-x", "c", "-")
	compiler.Stdin = bytes.NewReader(source)
	if out, err := compiler.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// TestFloor checks that each response comes back on the connection of its request, that large
// messages arrive whole, and that connections end on both sides, whoever closes them.
func TestFloor(t *testing.T) {
	tools := Tools{Lab: self(t), Floor: compile(t, Floor), Relay: compile(t, Relay)}
	t.Run("floor", func(t *testing.T) { testFloor(t, tools, "floor-2", 2) }) // sockets of the listener and the link
	t.Run("relay", func(t *testing.T) { testFloor(t, tools, "relay-2", 1) })
}

// testFloor runs TestFloor with a row whose processes each have so many sockets without a client.
func testFloor(t *testing.T, tools Tools, row string, atRest int) {
	rows := choose(t, Rows(), row)
	o := Options{Tools: tools}
	err := o.with(t.Context(), rows[0], 1, func(s *Stack) error {
		for _, header := range [][]load.Header{nil, {{Name: "connection", Value: "close"}}, nil} {
			r, err := load.Run(t.Context(), load.Options{
				Targets: []string{s.URL}, Closed: true, Connections: 20, Requests: 2000, Duration: time.Nanosecond,
				Timeout: requestTimeout, Header: header,
			})
			if err != nil || r.Counts.Requests < 2000 || r.Counts.Failed() > 0 { // a wrong nonce is a failure
				return fmt.Errorf("header %v: %+v, %v", header, r, err)
			}
			if reused := r.Connections == 20; reused != (header == nil) {
				t.Errorf("header %v: %d connections", header, r.Connections)
			}
		}
		want := bytes.Repeat([]byte("floor"), 1_600_000)
		client := http.Client{Timeout: requestTimeout}
		resp, err := client.Post("http://"+s.Addr+"/echo", "", bytes.NewReader(want))
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if got, err := io.ReadAll(resp.Body); err != nil || !bytes.Equal(got, want) {
			return fmt.Errorf("%d bytes of %d came back: %v", len(got), len(want), err)
		}
		client.CloseIdleConnections()
		for _, pid := range s.Meter {
			eventually.Nil(t, "both sides of all connections to end", func() error {
				if open, err := sockets(pid); err != nil || open != atRest {
					return fmt.Errorf("%d sockets, want %d; %v", open, atRest, err)
				}
				return nil
			})
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	noChildren(t)
}

// sockets returns how many sockets a process has.
func sockets(pid int) (n int, err error) {
	descriptors, err := filepath.Glob(proc(pid, "fd/*"))
	for _, d := range descriptors {
		if to, _ := os.Readlink(d); strings.HasPrefix(to, "socket:") {
			n++
		}
	}
	return n, err
}
