package stream

import (
	"cmp"
	"context"
	"net"
	"net/netip"
	"strconv"

	"github.com/remora-proxy/remora/internal/eyeballs"
	"github.com/remora-proxy/remora/internal/hostname"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
)

// maxAddresses limits the addresses of a host that are tried.
const maxAddresses = 3

// unrouted connects a stream to where its request goes, since no route matches.
type unrouted struct {
	c *connector
	*downstream.Unrouted
}

// connect resolves the host, and connects to the first of its addresses that accepts. Only
// addresses that were checked are dialled, so another result of DNS can't change the decision.
func (u *unrouted) connect() *fault.Failure {
	if u.To.IsValid() {
		u.c.dialled = u.To.String()
		if f := u.c.dialDestination(u.To); f != nil {
			return u.failed(f)
		}
		return nil
	}
	ctx, cancel := context.WithTimeout(u.c.p.srv.ctx, passTimeout)
	defer cancel()
	host, port := u.target()
	found, err := lookup(ctx, host)
	if err != nil || len(found) == 0 {
		u.c.p.srv.opt.Logger.Debug("host of a direct request not resolved", "host", host, "error", err)
		return u.failed(fault.Unresolved)
	}
	u.c.dialled = netip.AddrPortFrom(found[0].Unmap(), port).String() // for the access log
	reachable := u.reachable(host, port, found)
	if len(reachable) == 0 {
		u.c.p.srv.opt.Logger.Debug("direct request refused", "listener", u.Listener, "host", host, "address", u.c.dialled)
		return u.failed(fault.DirectRefused)
	}
	var addrs []string
	for _, to := range eyeballs.Order(reachable, maxAddresses) {
		addrs = append(addrs, to.String())
	}
	u.c.dialled = addrs[0]
	sock, err := eyeballs.Dial(ctx, addrs, u.dial)
	if err != nil {
		u.c.p.srv.opt.Logger.Debug("host of a direct request not connected", "host", host, "addresses", addrs, "error", err)
		return u.failed(fault.Connect)
	}
	u.c.dialled = sock.addr
	if u.c.p.attachUp(endOf(sock.Socket), endpointID{}) != nil {
		return u.failed(fault.Connect) // the stream was aborted
	}
	return nil
}

// lookup returns the addresses of a host.
func lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	if addrs := eyeballs.Loopback(host); addrs != nil {
		return addrs, nil
	}
	return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
}

// reached is a connection to an address of a host.
type reached struct {
	loop.Socket
	addr string
}

func (u *unrouted) dial(ctx context.Context, addr string) (reached, error) {
	sock, err := u.c.p.srv.opt.Dial(ctx, addr, "", "", nil)
	return reached{sock, addr}, err
}

// failed counts f, unless the stream was aborted meanwhile.
func (u *unrouted) failed(f *fault.Failure) *fault.Failure {
	if u.c.p.isAborted() || u.c.p.srv.ctx.Err() != nil {
		return cmp.Or(u.c.p.why.Load(), fault.Draining)
	}
	u.c.p.opener.Failed(f)
	return f
}

// target returns the host in its canonical form, and the port, 80 unless the authority has one.
func (u *unrouted) target() (host string, port uint16) {
	var buf hostname.Buffer
	authority := []byte(u.Authority)
	_, text := hostname.Split(authority)
	n, _ := strconv.ParseUint(cmp.Or(string(text), "80"), 10, 16) // the codec has checked it
	return string(hostname.Bare(hostname.Of(&buf, authority))), uint16(n)
}

// reachable returns those of the addresses that the listener may reach.
func (u *unrouted) reachable(host string, port uint16, found []netip.Addr) (all []netip.AddrPort) {
	var l *config.Listener
	cfg := u.c.p.srv.config()
	for i := range cfg.Listeners {
		if c := &cfg.Listeners[i]; c.Name == u.Listener && c.Unrouted == config.UnroutedDirect {
			l = c
		}
	}
	if l == nil { // a reload has changed it
		return nil
	}
	own, err := ownAddresses()
	if err != nil {
		u.c.p.srv.blind.Do(func() {
			u.c.p.srv.opt.Logger.Warn("direct requests reach only addresses that direct.allow lists one by one: those of this host are not known", "error", err)
		})
	}
	r := reach{allow: l.Direct.Destinations(), own: own, blind: err != nil}
	for _, addr := range found {
		if to := netip.AddrPortFrom(addr.Unmap().WithZone(""), port); r.permits(host, to) {
			all = append(all, to)
		}
	}
	return all
}
