// Package freeport reserves addresses for servers that can't listen on port 0: other
// processes, and servers whose address must be in a configuration beforehand. The
// lab and tests use it.
package freeport

import (
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"strconv"
	"syscall"
)

// The ports lie below those that systems assign to outgoing connections and to
// listeners on port 0 (RFC 6335 section 6; Linux begins at 32768). So no such socket
// takes a port before its server listens.
const (
	first = 20000
	last  = 32000
)

// Loopback returns n different addresses of 127.0.0.1 without a listener. Until release is
// called, or the process ends, no other call returns them, in any process. Servers may listen
// there, also one after the other, if they set SO_REUSEADDR, as package net does.
func Loopback(n int) (addrs []string, release func(), err error) {
	addrs, release, err = reserve(n, func(socket int) error {
		return os.NewSyscallError("setsockopt", syscall.SetsockoptInt(socket, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1))
	})
	if err == nil && runtime.GOOS != "linux" {
		release() // elsewhere a socket that is bound keeps even such servers out
	}
	return addrs, release, err
}

// Refusing returns an address of 127.0.0.1 that refuses connections. Nobody can listen there
// until release is called, or the process ends.
func Refusing() (addr string, release func(), err error) {
	addrs, release, err := reserve(1, func(int) error { return nil })
	if err != nil {
		return "", nil, err
	}
	return addrs[0], release, nil
}

// reserve binds n sockets and calls each on them. release closes them. The search begins at
// a random port, so that concurrent programs seldom meet.
func reserve(n int, each func(socket int) error) (addrs []string, release func(), err error) {
	var sockets []int
	release = func() {
		for _, s := range sockets {
			_ = syscall.Close(s)
		}
		sockets = nil
	}
	start := rand.IntN(last - first)
	for i := 0; i < last-first && len(sockets) < n; i++ {
		port := first + (start+i)%(last-first)
		s, failed := bind(port)
		if failed != nil {
			err = failed
			continue
		}
		sockets = append(sockets, s)
		if err := each(s); err != nil {
			release()
			return nil, nil, err
		}
		addrs = append(addrs, net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	}
	if len(sockets) < n {
		release()
		return nil, nil, errors.Join(errors.New("too few free ports"), err)
	}
	return addrs, release, nil
}

// bind returns a socket that does not listen, so it refuses connections. It is bound without
// SO_REUSEADDR, which fails if any other socket has the port.
func bind(port int) (socket int, err error) {
	syscall.ForkLock.RLock() // until the socket is closed at an exec
	if socket, err = syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0); err == nil {
		syscall.CloseOnExec(socket)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return 0, os.NewSyscallError("socket", err)
	}
	if err = syscall.Bind(socket, &syscall.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		_ = syscall.Close(socket)
		return 0, os.NewSyscallError("bind", err)
	}
	return socket, nil
}
