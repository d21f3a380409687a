package harness

import (
	"net"
	"sync"
	"testing"

	"github.com/remora-proxy/remora/internal/must"
)

// Forwarder forwards the connections of a listener to a server. It can fall silent, as a network does that is partitioned, or
// as a balancer does whose server has gone: connections stay open, and new ones are accepted, but no byte passes.
type Forwarder struct {
	listener net.Listener
	target   string
	tasks    sync.WaitGroup

	mu     sync.Mutex
	silent chan struct{} // closed when bytes pass again; nil while they do
	conns  map[net.Conn]struct{}
	closed bool
}

// Forward returns a Forwarder to target, which ends with the test. The target need not listen yet.
func Forward(t *testing.T, target string) *Forwarder {
	t.Helper()
	f := &Forwarder{listener: must.Listen(t), target: target, conns: make(map[net.Conn]struct{})}
	f.tasks.Go(f.accept)
	t.Cleanup(f.close)
	return f
}

// Addr returns the address of the listener.
func (f *Forwarder) Addr() string { return f.listener.Addr().String() }

// SetSilent makes bytes stay where they are, or pass again.
func (f *Forwarder) SetSilent(silent bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case silent && f.silent == nil:
		f.silent = make(chan struct{})
	case !silent && f.silent != nil:
		close(f.silent)
		f.silent = nil
	}
}

// Connections returns the number of open connections to the target.
func (f *Forwarder) Connections() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.conns) / 2
}

// Break closes the open connections. New ones are accepted.
func (f *Forwarder) Break() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.conns {
		c.Close()
	}
}

// await waits while the Forwarder is silent.
func (f *Forwarder) await() {
	f.mu.Lock()
	silent := f.silent
	f.mu.Unlock()
	if silent != nil {
		<-silent
	}
}

func (f *Forwarder) close() {
	f.SetSilent(false)
	f.listener.Close()
	f.mu.Lock()
	f.closed = true
	for c := range f.conns {
		c.Close()
	}
	f.mu.Unlock()
	f.tasks.Wait()
}

func (f *Forwarder) accept() {
	for {
		in, err := f.listener.Accept()
		if err != nil {
			return
		}
		f.tasks.Go(func() { f.serve(in) })
	}
}

// add notes an open connection, and reports whether it may stay open.
func (f *Forwarder) add(c net.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.closed {
		f.conns[c] = struct{}{}
	}
	return !f.closed
}

func (f *Forwarder) remove(c net.Conn) {
	c.Close()
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.conns, c)
}

func (f *Forwarder) serve(in net.Conn) {
	defer f.remove(in)
	if !f.add(in) {
		return
	}
	f.await()
	out, err := net.Dial("tcp", f.target)
	if err != nil {
		return
	}
	defer f.remove(out)
	if !f.add(out) {
		return
	}
	back := make(chan struct{})
	go func() {
		defer close(back)
		f.pass(in, out)
	}()
	f.pass(out, in)
	<-back
}

// pass passes bytes on until an end closes. Then it closes both.
func (f *Forwarder) pass(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		f.await()
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
