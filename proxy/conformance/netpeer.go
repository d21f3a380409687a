package conformance

import (
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"testing"
	"time"
)

// dialTime is how long a Peer may take to be connected.
const dialTime = time.Minute

// NetPeer is the Peer of a real driver: a plain blocking TCP connection to addr.
// It is closed with the test.
func NetPeer(t *testing.T, addr string) Peer {
	t.Helper()
	c, err := net.DialTimeout("tcp", addr, dialTime)
	if err != nil {
		t.Fatalf("dial %s: %v", addr, err)
	}
	return newNetPeer(t, c.(*net.TCPConn))
}

// TLSPeer is NetPeer over TLS. It ends a direction with close_notify.
func TLSPeer(t *testing.T, addr string, config *tls.Config) Peer {
	t.Helper()
	d := tls.Dialer{NetDialer: &net.Dialer{Timeout: dialTime}, Config: config}
	c, err := d.Dial("tcp", addr)
	if err != nil {
		t.Fatalf("dial %s: %v", addr, err)
	}
	return newNetPeer(t, tlsConn{c.(*tls.Conn)})
}

// tlsConn is a tls.Conn with the two methods of a TCPConn that a peer needs.
type tlsConn struct{ *tls.Conn }

func (c tlsConn) CloseWrite() error {
	return errors.Join(c.Conn.CloseWrite(), c.NetConn().(*net.TCPConn).CloseWrite())
}

func (c tlsConn) SetLinger(seconds int) error { return c.NetConn().(*net.TCPConn).SetLinger(seconds) }

// Close closes the socket without close_notify, as a TCPConn's does.
func (c tlsConn) Close() error { return c.NetConn().Close() }

func newNetPeer(t *testing.T, c netConn) Peer {
	p := &netPeer{c: c}
	p.wake.L = &p.mu
	p.done.Add(1)
	go p.send()
	t.Cleanup(p.close)
	return p
}

// netConn is a net.Conn that can end in the ways of TCP.
type netConn interface {
	net.Conn
	CloseWrite() error
	SetLinger(seconds int) error
}

type netPeer struct {
	c    netConn
	done sync.WaitGroup

	mu      sync.Mutex
	wake    sync.Cond // signals work for send
	queue   [][]byte
	shut    bool // CloseWrite was called
	closed  bool
	got     []byte
	err     error
	reading bool
}

// send is the goroutine that writes, so that Send does not block.
func (p *netPeer) send() {
	defer p.done.Done()
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		for len(p.queue) == 0 && !p.shut && !p.closed {
			p.wake.Wait()
		}
		if p.closed {
			return
		}
		if len(p.queue) == 0 {
			_ = p.c.CloseWrite() // fails only when the connection is gone: Got tells
			return
		}
		b := p.queue[0]
		p.queue = p.queue[1:]
		p.mu.Unlock()
		_, err := p.c.Write(b)
		p.mu.Lock()
		if err != nil {
			return // Got tells
		}
	}
}

func (p *netPeer) Send(b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queue = append(p.queue, b)
	p.wake.Signal()
}

func (p *netPeer) Read() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reading || p.closed {
		return
	}
	p.reading = true
	p.done.Add(1)
	go p.receive()
}

func (p *netPeer) receive() {
	defer p.done.Done()
	b := make([]byte, 64<<10)
	for {
		n, err := p.c.Read(b)
		p.mu.Lock()
		p.got = append(p.got, b[:n]...)
		p.err = err
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (p *netPeer) Got() ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.got[:len(p.got):len(p.got)], p.err // what is there is not written to again
}

func (p *netPeer) CloseWrite() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shut = true
	p.wake.Signal()
}

func (p *netPeer) Reset() {
	_ = p.c.SetLinger(0) // a close without lingering sends a reset
	_ = p.c.Close()
}

func (p *netPeer) close() {
	p.mu.Lock()
	p.closed = true
	p.wake.Signal()
	p.mu.Unlock()
	_ = p.c.Close()
	p.done.Wait()
}
