// Package server serves the connections of the lab's servers on netpoll, which no other package
// imports.
//
// One goroutine of netpoll waits for the input of all connections and reads it. A handler then runs
// on another goroutine. So a handler may sleep, as an emulated replica does, and a connection at
// rest has no goroutine.
//
// Package net listens and accepts. netpoll's own listener leaks sockets into child processes and
// closes a descriptor twice.
//
// netpoll has no TLS and no HTTP. No server of the lab has TLS, and HTTP/1.1, HTTP/2 and Dubbo are
// parsed by packages lab/wire and lab/dubbo.
package server

import (
	"context"
	"errors"
	"net"
	"runtime"
	"sync"
	"time"
)

// Handler serves the input of one connection. It returns how many bytes of in it has used, and
// whether the connection stays open. The next call gets the rest again, followed by more. in is
// valid until the handler returns. A handler may block. No two calls for a connection overlap.
type Handler func(in []byte) (used int, open bool)

// Server is a listener and its connections.
type Server struct {
	listener net.Listener
	ctx      context.Context
	cancel   context.CancelFunc
	wg       sync.WaitGroup

	mu    sync.Mutex
	conns map[*Conn]struct{} // until their sockets are closed
}

// New returns a server of ln, which it owns. Serve must follow.
func New(ln net.Listener) *Server {
	s := &Server{listener: ln, conns: map[*Conn]struct{}{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Context ends when the connections are closed.
func (s *Server) Context() context.Context { return s.ctx }

// Addr returns the address that the server listens on.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Serve calls open for each connection from now on, and calls the handler that open returns whenever
// there is input.
//
// Serve gives the process at least two Ps. netpoll's goroutine waits in a system call and keeps its
// P for up to 10 ms. With no other P, sleeping handlers would wake that late.
func (s *Server) Serve(open func(c *Conn) Handler) {
	if runtime.GOMAXPROCS(0) < 2 {
		runtime.GOMAXPROCS(2)
	}
	s.wg.Go(func() {
		for {
			nc, err := s.listener.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				err = s.serve(nc, open)
			}
			if err != nil { // out of descriptors: try again
				time.Sleep(10 * time.Millisecond)
			}
		}
	})
}

func (s *Server) serve(nc net.Conn, open func(c *Conn) Handler) error {
	c, err := newConn(nc)
	if err != nil {
		return err
	}
	s.list(c)
	c.OnClose(func() { s.unlist(c) })
	c.start(open(c))
	if s.ctx.Err() != nil { // Drop may not have found it
		s.Drop()
	}
	return nil
}

func (s *Server) list(c *Conn) {
	s.wg.Add(1)
	handlers.join()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns[c] = struct{}{}
}

func (s *Server) unlist(c *Conn) {
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	handlers.leave()
	s.wg.Done()
}

// Clients returns the number of connections that are Alive.
func (s *Server) Clients() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		if c.Alive() {
			n++
		}
	}
	return n
}

// StopAccepting closes the listener. Connections go on.
func (s *Server) StopAccepting() error { return s.listener.Close() }

// Drop closes all connections, and does not wait for their handlers.
func (s *Server) Drop() {
	s.cancel()
	for _, c := range s.hangUp() {
		c.Close()
	}
}

// hangUp returns the connections that were open.
func (s *Server) hangUp() (conns []*Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.hangUp()
		conns = append(conns, c)
	}
	return conns
}

// Close closes the listener, if it is open, and all connections, and waits for their handlers.
func (s *Server) Close() error {
	err := s.listener.Close()
	s.Drop()
	s.wg.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
