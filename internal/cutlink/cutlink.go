// Package cutlink stands between a client and a server, in tests that cut the connections of the two. It is test support; no
// command may import it.
package cutlink

import (
	"io"
	"net"
	"sync"
	"testing"
)

// Link is a TCP proxy whose connections can be cut.
type Link struct {
	listener net.Listener
	target   string

	mu    sync.Mutex
	cut   bool
	conns map[net.Conn]struct{}
	tasks sync.WaitGroup
}

// To starts a Link to target, which the end of the test stops.
func To(t testing.TB, target string) *Link {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &Link{listener: l, target: target, conns: make(map[net.Conn]struct{})}
	f.tasks.Go(f.accept)
	t.Cleanup(func() {
		l.Close()
		f.Cut(true)
		f.tasks.Wait()
	})
	return f
}

// Addr returns the address for clients.
func (f *Link) Addr() string { return f.listener.Addr().String() }

func (f *Link) accept() {
	for {
		in, err := f.listener.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", f.target)
		if err != nil {
			in.Close()
			continue
		}
		if !f.add(in, out) {
			in.Close()
			out.Close()
			continue
		}
		for _, pair := range [][2]net.Conn{{in, out}, {out, in}} {
			f.tasks.Go(func() {
				io.Copy(pair[0], pair[1])
				in.Close()
				out.Close()
			})
		}
	}
}

func (f *Link) add(conns ...net.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range conns {
		f.conns[c] = struct{}{}
	}
	return !f.cut
}

// Cut cuts all present and future connections, or allows them again.
func (f *Link) Cut(cut bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cut = cut
	if cut {
		for c := range f.conns {
			c.Close()
		}
		clear(f.conns)
	}
}
