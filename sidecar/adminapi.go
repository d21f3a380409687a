package sidecar

import (
	"log/slog"
	"net"
	"syscall"

	"github.com/remora-proxy/remora/proxy/admin"
	"github.com/remora-proxy/remora/proxy/reactor/unixsock"
	"github.com/remora-proxy/remora/sidecar/sockets"
)

// adminAPI is the admin API and its sockets.
type adminAPI struct {
	*admin.Server // nil before the start has reached it
	log           *slog.Logger
	address       string         // of the configuration; empty for none
	sockets       []net.Listener // as sockets.Open.Take returns them; none without an address
}

// bind opens the sockets, or takes over those that are open.
func (a *adminAPI) bind(open sockets.Open) (err error) {
	if a.address == "" {
		return nil
	}
	if a.sockets, err = open.Take(a.address, 0); err != nil {
		return &BindError{"admin.address", a.address, err}
	}
	return nil
}

// serve responds to requests.
func (a *adminAPI) serve() {
	if len(a.sockets) > 0 {
		a.Start(a.sockets...)
		a.log.Info("admin API", "address", a.sockets[0].Addr().String())
	}
}

// offer adds the sockets that a successor can take over to all, by their address.
func (a *adminAPI) offer(all map[string]syscall.Conn) {
	for i, ln := range a.sockets {
		address := a.address
		if i > 0 {
			address = ln.Addr().String()
		}
		if sockets.HasFixedPort(address) {
			all[address] = ln.(syscall.Conn)
		}
	}
}

// own makes this process remove the files of Unix sockets at its end.
func (a *adminAPI) own() {
	for _, ln := range a.sockets {
		if ln, ok := ln.(*unixsock.Listener); ok {
			ln.Own()
		}
	}
}

// disown leaves the files of Unix sockets to the successor.
func (a *adminAPI) disown() {
	for _, ln := range a.sockets {
		if ln, ok := ln.(*unixsock.Listener); ok {
			ln.Disown()
		}
	}
}

// leave ends the service of a process whose successor has the sockets.
func (a *adminAPI) leave() {
	if err := bounded(a.Close); err != nil {
		a.log.Warn("requests to the admin API cut off", "error", err)
	}
}

// stop ends the service, and closes the sockets also if it never began.
func (a *adminAPI) stop() (err error) {
	if a.Server != nil {
		err = bounded(a.Close)
	}
	for _, ln := range a.sockets {
		_ = ln.Close()
	}
	return err
}
