package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
)

// versioned stands between two sidecars, and makes the dialling one name another
// range of link versions: the seventh byte of its preface is the highest.
func versioned(t *testing.T, target string, lowest, highest byte) (addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var open sync.WaitGroup
	t.Cleanup(func() { ln.Close(); open.Wait() })
	relay := func(from net.Conn) {
		defer from.Close()
		to, err := net.Dial("tcp", target)
		if err != nil {
			return
		}
		defer to.Close()
		open.Go(func() {
			_, _ = io.Copy(from, to)
			from.Close()
		})
		head := make([]byte, 7)
		if _, err := io.ReadFull(from, head); err != nil {
			return
		}
		head[5], head[6] = lowest, highest
		if _, err := to.Write(head); err == nil {
			_, _ = io.Copy(to, from)
		}
	}
	open.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			open.Go(func() { relay(c) })
		}
	})
	return ln.Addr().String()
}

// TestLinkVersions: two sidecars a version of the link apart work together, and
// two that are further apart say so at once.
func TestLinkVersions(t *testing.T) {
	a := newApp(t)
	p, ingress := provider(t, a)
	p.ready()
	for _, c := range []struct {
		lowest, highest byte
		want            int
	}{{1, 1, 200}, {1, 2, 200}, {2, 3, 502}} {
		egress := freeAddrs(t, 1)[0]
		client := startRemora(t, fmt.Sprintf(`
loops: 1
listeners: [{name: egress, address: %q, protocol: http}]
routes: [{service: compute}]
services: {compute: {discover: static, endpoints: [%q], protocol: link, timeout: 60s, connect_timeout: 15s}}`,
			egress, versioned(t, ingress, c.lowest, c.highest)))
		client.ready()
		resp, err := http.Get("http://" + egress + "/")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if code := resp.Header.Get("X-Remora-Error"); resp.StatusCode != c.want || (code == "") != (c.want == 200) {
			t.Errorf("versions %d to %d: %d %s, want %d", c.lowest, c.highest, resp.StatusCode, code, c.want)
		}
	}
}
