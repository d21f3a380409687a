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
	*pair
	*downstream.Unrouted
}

// connect resolves the host, and connects to the first of its addresses that accepts. Only
// addresses that were checked are dialled, so another result of DNS can't change the decision.
func (d *unrouted) connect() *fault.Failure {
	if d.To.IsValid() {
		d.dialled = d.To.String()
		if f := d.dialDestination(d.To); f != nil {
			return d.failed(f)
		}
		return nil
	}
	ctx, cancel := context.WithTimeout(d.srv.ctx, passTimeout)
	defer cancel()
	host, port := d.target()
	found, err := lookup(ctx, host)
	if err != nil || len(found) == 0 {
		d.srv.opt.Logger.Debug("host of a direct request not resolved", "host", host, "error", err)
		return d.failed(fault.Unresolved)
	}
	d.dialled = netip.AddrPortFrom(found[0].Unmap(), port).String() // for the access log
	reachable := d.reachable(host, port, found)
	if len(reachable) == 0 {
		d.srv.opt.Logger.Debug("direct request refused", "listener", d.Listener, "host", host, "address", d.dialled)
		return d.failed(fault.DirectRefused)
	}
	var addrs []string
	for _, to := range eyeballs.Order(reachable, maxAddresses) {
		addrs = append(addrs, to.String())
	}
	d.dialled = addrs[0]
	sock, err := eyeballs.Dial(ctx, addrs, d.dial)
	if err != nil {
		d.srv.opt.Logger.Debug("host of a direct request not connected", "host", host, "addresses", addrs, "error", err)
		return d.failed(fault.Connect)
	}
	d.dialled = sock.addr
	if d.attachUp(endOf(sock.Socket), endpointID{}) != nil {
		return d.failed(fault.Connect) // the stream was aborted
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

func (d *unrouted) dial(ctx context.Context, addr string) (reached, error) {
	sock, err := d.srv.opt.Dial(ctx, addr, "", "", nil)
	return reached{sock, addr}, err
}

// failed counts f, unless the stream was aborted meanwhile.
func (d *unrouted) failed(f *fault.Failure) *fault.Failure {
	if d.isAborted() || d.srv.ctx.Err() != nil {
		return cmp.Or(d.why.Load(), fault.Draining)
	}
	d.opener.Failed(f)
	return f
}

// target returns the host in its canonical form, and the port, 80 unless the authority has one.
func (d *unrouted) target() (host string, port uint16) {
	var buf hostname.Buffer
	authority := []byte(d.Authority)
	_, text := hostname.Split(authority)
	n, _ := strconv.ParseUint(cmp.Or(string(text), "80"), 10, 16) // the codec has checked it
	return string(hostname.Bare(hostname.Of(&buf, authority))), uint16(n)
}

// reachable returns those of the addresses that the listener may reach.
func (d *unrouted) reachable(host string, port uint16, found []netip.Addr) (all []netip.AddrPort) {
	var l *config.Listener
	cfg := d.srv.config()
	for i := range cfg.Listeners {
		if c := &cfg.Listeners[i]; c.Name == d.Listener && c.Unrouted == config.UnroutedDirect {
			l = c
		}
	}
	if l == nil { // a reload has changed it
		return nil
	}
	own, err := ownAddresses()
	if err != nil {
		d.srv.blind.Do(func() {
			d.srv.opt.Logger.Warn("direct requests reach only addresses that direct.allow lists one by one: those of this host are not known", "error", err)
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
