// Package server accepts connections for the servers of the lab.
package server

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// Server is a listener and its connections, each with a goroutine of its own.
type Server struct {
	listener net.Listener
	ctx      context.Context
	cancel   context.CancelFunc
	wg       sync.WaitGroup
}

// New returns a server of ln, which it owns. Serve must follow.
func New(ln net.Listener) *Server {
	s := &Server{listener: ln}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Context ends when the connections are closed.
func (s *Server) Context() context.Context { return s.ctx }

// Addr returns the address that the server listens on.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Serve calls handle for each connection from now on. The connection is closed once handle returns.
func (s *Server) Serve(handle func(nc net.Conn)) {
	s.wg.Go(func() {
		for {
			nc, err := s.listener.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil { // out of descriptors: try again
				time.Sleep(10 * time.Millisecond)
				continue
			}
			s.wg.Go(func() {
				defer nc.Close()
				defer context.AfterFunc(s.ctx, func() { nc.Close() })()
				handle(nc)
			})
		}
	})
}

// StopAccepting closes the listener. Connections go on.
func (s *Server) StopAccepting() error { return s.listener.Close() }

// Drop closes all connections, and does not wait for what handles them.
func (s *Server) Drop() { s.cancel() }

// Close closes the listener, if it is open, and all connections, and waits for what handles them.
func (s *Server) Close() error {
	err := s.listener.Close()
	s.cancel()
	s.wg.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
