package reactor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"syscall"

	"github.com/remora-proxy/remora/internal/unixaddr"
	"github.com/remora-proxy/remora/proxy/reactor/kernel"
	"github.com/remora-proxy/remora/proxy/reactor/unixsock"
)

// BindOptions are options of BindWith. The zero value is ready for use.
type BindOptions struct {
	// Mode is the mode of the file of a Unix socket; 0 means that the umask decides.
	Mode fs.FileMode

	// Beside are open TCP sockets of the same user whose addresses the new one may overlap. Of two
	// such sockets the kernel gives a connection to the one whose address is narrower.
	Beside []net.Listener
}

// Bind opens a socket at addr ("host:port" or a Unix socket) for Serve. From then on the kernel
// accepts connections into its backlog. 0.0.0.0 is all IPv4 addresses; "::" and no host are all
// addresses of both versions. A Unix socket is an *unixsock.Listener.
func Bind(addr string) (net.Listener, error) { return BindWith(addr, BindOptions{}) }

// BindWith is Bind with options.
func BindWith(addr string, o BindOptions) (net.Listener, error) {
	if network, name := unixaddr.Split(addr); network == "unix" {
		ln, err := unixsock.Listen(name, o.Mode)
		if err != nil {
			return nil, fmt.Errorf("reactor: %w", err)
		}
		return ln, nil
	}
	ln, err := bindTCP(addr, o.Beside)
	if err != nil {
		return nil, fmt.Errorf("reactor: %w", err)
	}
	return ln, nil
}

// Duplicate returns a listener with a descriptor of its own of a listening socket.
func Duplicate(socket syscall.Conn) (net.Listener, error) {
	fd, err := kernel.Duplicate(socket)
	if err != nil {
		return nil, fmt.Errorf("reactor: %w", err)
	}
	file := os.NewFile(uintptr(fd), "listener")
	defer file.Close()
	return net.FileListener(file) // has a duplicate
}

// bindTCP opens a TCP socket. It and those beside have the option to share the port only for this moment: with the option, any
// process of the user could take a part of their connections. Linux remembers it, though: a socket of the same user that has the
// option can still bind to the port afterwards (seen with 6.18).
func bindTCP(addr string, beside []net.Listener) (net.Listener, error) {
	lc := net.ListenConfig{
		KeepAlive: -1, // the listening socket has the options
		// Control runs before connections enter the backlog, so they inherit the options.
		Control: func(_, _ string, raw syscall.RawConn) error {
			return onSocket(raw, func(fd int) error {
				if len(beside) > 0 {
					return errors.Join(setStreamOptions(fd), kernel.SharePort(fd, true))
				}
				return setStreamOptions(fd)
			})
		},
	}
	lc.SetMultipathTCP(false) // plain TCP has the shorter path through the kernel
	// Where the option was set it can be taken back. A socket that was closed meanwhile shares nothing.
	defer func() { _ = sharePort(false, beside...) }()
	if err := sharePort(true, beside...); err != nil {
		return nil, err
	}
	ln, err := lc.Listen(context.Background(), networkOf(addr), addr)
	if err != nil {
		return nil, err
	}
	_ = sharePort(false, ln)
	return ln, nil
}

// sharePort sets whether sockets share their port with those at overlapping addresses that do, too.
func sharePort(on bool, all ...net.Listener) (failed error) {
	for _, ln := range all {
		raw, err := ln.(*net.TCPListener).SyscallConn()
		if err == nil {
			err = onSocket(raw, func(fd int) error { return kernel.SharePort(fd, on) })
		}
		failed = errors.Join(failed, err)
	}
	return failed
}

// onSocket calls f with the descriptor of a socket.
func onSocket(raw syscall.RawConn, f func(fd int) error) (failed error) {
	err := raw.Control(func(fd uintptr) { failed = f(int(fd)) })
	return errors.Join(err, failed)
}

// networkOf returns the network of addr for package net. With "tcp" that would listen at 0.0.0.0
// on all IPv6 addresses, too.
func networkOf(addr string) string {
	host, _, _ := net.SplitHostPort(addr)
	if ip, err := netip.ParseAddr(host); err == nil && ip.Is4() {
		return "tcp4"
	}
	return "tcp"
}
