package bench

import (
	"fmt"
	"net"
)

// A size is how large the sidecars of a row are built. The zero value is one loop,
// one endpoint, and a listener whose service is fixed.
type size struct {
	loops     int // of each sidecar
	endpoints int // that the first sidecar has: addresses of what comes next
	routes    int // of the first sidecar, of which the last matches; 0: none is needed
}

// grown is what a size makes of a sidecar's configuration.
type grown struct {
	Loops                int
	Listeners, Endpoints []string // addresses
	Routes               []string // paths
	Concurrency          int      // of the service, where it is the application; 0: any
}

// concurrency is how many requests at a time reach the replica; others wait in the
// sidecar before it. Without it 10,000 connections that begin at once would be as many
// to the replica, and a sidecar refuses to have so many to open.
const concurrency = 1024

func (p place) grow() (g grown, err error) {
	g = grown{Loops: max(1, p.size.loops), Listeners: []string{p.Listen}, Endpoints: []string{p.Upstream}}
	if p.size != (size{}) {
		g.Concurrency = concurrency
	}
	switch p.hop {
	case 0:
		g.Endpoints, err = aliases(p.Upstream, p.size.endpoints)
		for i := range p.size.routes - 1 {
			g.Routes = append(g.Routes, fmt.Sprintf("/route-%04d/", i+1))
		}
		if p.size.routes > 0 {
			g.Routes = append(g.Routes, computePath)
		}
	case 1:
		g.Listeners, err = aliases(p.Listen, p.size.endpoints)
	}
	return g, err
}

// aliases are n addresses of loopback, one at least: addr, which is one of
// 127.0.0.1, and others that have its port.
func aliases(addr string, n int) ([]string, error) {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	all := []string{addr}
	for i := 1; i < n; i++ {
		const perNet = 250
		all = append(all, net.JoinHostPort(fmt.Sprintf("127.0.%d.%d", i/perNet, i%perNet+1), port))
	}
	return all, nil
}
