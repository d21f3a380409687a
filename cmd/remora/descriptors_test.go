package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"testing"
	"time"
)

// descriptors returns the number of open descriptors of the process.
func (p *process) descriptors() int {
	p.t.Helper()
	all, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.cmd.Process.Pid))
	if err != nil {
		p.t.Fatal(err)
	}
	return len(all)
}

// keepOpen sends a GET for path to addr on a connection that stays open, and returns the error of
// the response.
func keepOpen(t *testing.T, addr, path string) error {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(patience))
	if _, err := fmt.Fprintf(nc, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path); err != nil {
		return err
	}
	resp, err := http.ReadResponse(bufio.NewReader(nc), nil)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// TestAdminConnections: callers of the admin API that keep their connections open take no more
// descriptors than limits.admin_connections, and each probe is answered.
func TestAdminConnections(t *testing.T) {
	const limit, flood = 4, 100
	p, _ := consumer(t, newApp(t), fmt.Sprintf("limits: {admin_connections: %d}", limit))
	p.ready()
	before := p.descriptors()
	for i := range flood {
		if err := keepOpen(t, p.admin, "/healthz"); err != nil {
			t.Fatalf("probe %d: %v", i, err)
		}
	}
	if n := p.descriptors(); n > before+limit {
		t.Errorf("%d descriptors, %d before, with %d idle connections of the admin API", n, before, flood)
	}
	p.await("/healthz", 200, "ok\n")
	p.ready()
}
