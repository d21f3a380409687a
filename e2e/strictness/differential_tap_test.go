package strictness

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"syscall"

	"github.com/remora-proxy/remora/internal/corpus"
)

// tap relays connections between a sidecar and a server, and records what both send.
// A strict parser reads the requests, and net/http the responses.
type tap struct {
	server string
	ln     net.Listener
	all    sync.WaitGroup
	mu     sync.Mutex
	record tapped // since the last take
	conns  map[*tapConn]bool
}

// tapConn is one connection of a sidecar to the server.
type tapConn struct {
	sidecar, server *net.TCPConn
	begun           []byte   // from the sidecar, behind the last complete request
	methods         []string // of requests without a response
	heard           []byte   // from the server, behind the last response
	ended           bool     // by the server
}

// tapped is what passed a tap between two takes.
type tapped struct {
	requests   []corpus.Message // in the order in which they were completed
	wrong      error            // why bytes of the sidecar are no request
	responses  int              // to requests
	unanswered int              // requests whose connection the server has closed
	toParts    []int            // statuses of responses to requests that never came to an end
	surplus    []string         // responses without a request, and bytes that are no response
}

func startTap(server string) (*tap, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	t := &tap{server: server, ln: ln, conns: map[*tapConn]bool{}}
	t.all.Go(func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			t.all.Go(func() { t.relay(nc.(*net.TCPConn)) })
		}
	})
	return t, nil
}

func (t *tap) addr() string { return t.ln.Addr().String() }

// close ends all connections and waits for their goroutines.
func (t *tap) close() {
	t.ln.Close()
	t.mu.Lock()
	for c := range t.conns {
		c.sidecar.Close()
		c.server.Close()
	}
	t.mu.Unlock()
	t.all.Wait()
}

func (t *tap) relay(sidecar *net.TCPConn) {
	defer sidecar.Close()
	server, err := net.Dial("tcp", t.server)
	if err != nil {
		return
	}
	defer server.Close()
	c := &tapConn{sidecar: sidecar, server: server.(*net.TCPConn)}
	t.mu.Lock()
	t.conns[c] = true
	t.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() {
		pump(c.server, c.sidecar, func(b []byte) {
			t.mu.Lock()
			defer t.mu.Unlock()
			c.begun = append(c.begun, b...)
			c.complete(&t.record)
		})
	})
	both.Go(func() {
		pump(c.sidecar, c.server, func(b []byte) {
			t.mu.Lock()
			defer t.mu.Unlock()
			c.heard = append(c.heard, b...)
		})
		t.mu.Lock()
		c.ended = true
		t.mu.Unlock()
	})
	both.Wait()
}

// pump copies until the end of from, and calls record before it writes. A reset is passed
// on: it tells a server that a request was cut off.
func pump(to, from *net.TCPConn, record func(b []byte)) {
	defer to.CloseWrite()
	b := make([]byte, 16<<10)
	for {
		n, err := from.Read(b)
		if n > 0 {
			acknowledge(from)
			record(b[:n])
			if _, err := to.Write(b[:n]); err != nil {
				from.Close()
				return
			}
		}
		if errors.Is(err, syscall.ECONNRESET) {
			_ = to.SetLinger(0)
			to.Close()
		}
		if err != nil {
			return
		}
	}
}

// quickAck is TCP_QUICKACK of linux/tcp.h.
const quickAck = 12

// acknowledge has the kernel acknowledge what was received, and not 40 ms later. A server that
// sends head and body apart waits for that.
func acknowledge(nc *net.TCPConn) {
	if raw, err := nc.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, quickAck, 1)
		})
	}
}

// take returns what has passed since the last take.
func (t *tap) take() tapped {
	t.mu.Lock()
	defer t.mu.Unlock()
	for c := range t.conns {
		if err := c.settle(&t.record); err != nil {
			t.record.surplus = append(t.record.surplus, err.Error())
		}
		if c.ended {
			t.record.unanswered += len(c.methods)
			delete(t.conns, c)
		}
	}
	got := t.record
	t.record = tapped{}
	return got
}

// complete parses the complete requests that the sidecar has sent.
func (c *tapConn) complete(got *tapped) {
	for len(c.begun) > 0 && got.wrong == nil {
		m, n, err := corpus.ParseRequest(c.begun)
		if err == io.ErrUnexpectedEOF {
			return
		}
		if err != nil {
			got.wrong = fmt.Errorf("%w in %q", err, c.begun)
			return
		}
		c.begun = c.begun[n:]
		c.methods = append(c.methods, m.Method)
		got.requests = append(got.requests, m)
	}
}

// settle parses the complete responses that c has heard.
func (c *tapConn) settle(got *tapped) error {
	for len(c.heard) > 0 {
		method := ""
		if len(c.methods) > 0 {
			method = c.methods[0]
		}
		status, n, err := firstResponse(c.heard, method)
		if errors.Is(err, io.ErrUnexpectedEOF) && !c.ended {
			return nil
		}
		heard := c.heard
		if status != 0 && len(c.methods) == 0 && len(c.begun) > 0 {
			err = nil // the response to a part of a request may be cut off, too
		}
		if err != nil {
			c.heard = nil
			return fmt.Errorf("%w: %.100q", err, heard)
		}
		c.heard = c.heard[n:]
		switch {
		case status < 200 && status != http.StatusSwitchingProtocols:
		case len(c.methods) == 0 && len(c.begun) > 0:
			got.toParts = append(got.toParts, status)
		case len(c.methods) == 0:
			got.surplus = append(got.surplus, fmt.Sprintf("%.100q", heard))
		default:
			c.methods = c.methods[1:]
			got.responses++
		}
	}
	return nil
}

// firstResponse parses the response at the start of b to a request with the method, and
// returns its length.
func firstResponse(b []byte, method string) (status, n int, err error) {
	rest := bytes.NewReader(b)
	buffered := bufio.NewReader(rest)
	resp, err := http.ReadResponse(buffered, &http.Request{Method: method})
	if err != nil {
		return 0, 0, err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return resp.StatusCode, len(b), err
	}
	return resp.StatusCode, len(b) - rest.Len() - buffered.Buffered(), nil
}
