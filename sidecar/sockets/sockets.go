// Package sockets passes listening sockets on to the listeners of another configuration, of this process
// or of its successor.
package sockets

import (
	"io/fs"
	"net"
	"net/netip"
	"strings"

	"github.com/remora-proxy/remora/internal/bindaddr"
	"github.com/remora-proxy/remora/internal/unixaddr"
	"github.com/remora-proxy/remora/proxy/reactor"
	"github.com/remora-proxy/remora/proxy/reactor/unixsock"
)

// Open are listening sockets, by their address, that new listeners may take over: those of a
// predecessor, or of listeners that a reload ends. Each has a descriptor of its own. The zero value
// has none.
type Open map[string]net.Listener

// Take returns the sockets of a new listener at an address, and removes from open those that the
// listener takes over. The first socket is at the address itself; if none is open there, Take binds one.
// The other sockets are at parts of the address, as 127.0.0.1 is of 0.0.0.0. They must stay open as long
// as the listener: the kernel gives them the connections to their part, and resets waiting connections
// when a socket closes. mode is the mode of the file of a new Unix socket.
func (open Open) Take(address string, mode fs.FileMode) ([]net.Listener, error) {
	same, parts, wider := open.at(address)
	first := open[same]
	if first == nil {
		var err error
		beside := open.all(append(wider, parts...))
		if first, err = reactor.BindWith(address, reactor.BindOptions{Mode: mode, Beside: beside}); err != nil {
			return nil, err
		}
	}
	sockets := append([]net.Listener{first}, open.all(parts)...)
	for _, key := range append(parts, same) {
		delete(open, key)
	}
	return sockets, nil
}

// at returns the addresses of the sockets at an address, at parts of it, and at wider ones.
func (open Open) at(address string) (same string, parts, wider []string) {
	if !HasFixedPort(address) {
		return "", nil, nil
	}
	if network, name := unixaddr.Split(address); network == "unix" {
		for key := range open {
			if network, other := unixaddr.Split(key); network == "unix" && unixsock.SameName(name, other) {
				same = key
			}
		}
		return same, nil, nil
	}
	wanted, ok := resolve(address)
	if !ok {
		return "", nil, nil
	}
	for key, ln := range open {
		switch here, ok := bindaddr.Parse(ln.Addr().String()); {
		case !ok:
		case here == wanted:
			same = key
		case bindaddr.Covers(wanted, here):
			parts = append(parts, key)
		case bindaddr.Covers(here, wanted):
			wider = append(wider, key)
		}
	}
	return same, parts, wider
}

// Overlap reports whether a socket is open at an address, at a part of it, or at a wider one.
func (open Open) Overlap(address string) bool {
	same, parts, wider := open.at(address)
	return same != "" || len(parts)+len(wider) > 0
}

// all returns the sockets at addresses.
func (open Open) all(addresses []string) (all []net.Listener) {
	for _, address := range addresses {
		all = append(all, open[address])
	}
	return all
}

// Close closes the descriptors.
func (open Open) Close() {
	for _, ln := range open {
		_ = ln.Close()
	}
}

// resolve returns what a socket at address, with an IP or a host name, listens at.
func resolve(address string) (netip.AddrPort, bool) {
	if at, ok := bindaddr.Parse(address); ok {
		return at, true
	}
	at, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return netip.AddrPort{}, false // as binding it will say
	}
	return bindaddr.Parse(at.String())
}

// HasFixedPort reports whether an address is the same for each process. With port 0
// it is not.
func HasFixedPort(address string) bool { return !strings.HasSuffix(address, ":0") } // no Unix socket ends so

// Adopt makes the file of a Unix socket stay in its place when ln is closed, until Own.
func Adopt(ln net.Listener, address string) net.Listener {
	if ln, ok := ln.(*net.UnixListener); ok {
		_, name := unixaddr.Split(address)
		return unixsock.Adopt(ln, name)
	}
	return ln
}
