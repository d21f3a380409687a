// Package health checks endpoints and applications actively. Follow stands between a registry
// and the users of its snapshots, and adds the verdict of the checks to each endpoint. The
// package knows nothing of how endpoints are picked. A single slow or bad response changes
// nothing: a verdict changes after enough contrary outcomes in a row.
package health

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"github.com/remora-proxy/remora/internal/eyeballs"
	"github.com/remora-proxy/remora/internal/unixaddr"
)

// The most that is read of a response, in bytes. To read the body spares the application a reset.
const (
	maxBody   = 64 << 10
	maxHeader = 64 << 10
)

// elsewhere reports whether checks ask another address than the endpoint's.
func (c *Check) elsewhere() bool { return c.Host != "" || c.Port != 0 }

// Check says what is requested, and which outcomes change a verdict. All times and numbers must be
// > 0. Without a Path and GRPC a check is a TCP connect.
type Check struct {
	Path     string        // of a GET
	GRPC     string        // the service that grpc.health.v1 is asked for, over HTTP/2; "/" means the whole server
	Host     string        // asked in place of the endpoint's; "" means the endpoint's
	Port     int           // likewise; 0 means the endpoint's
	Interval time.Duration // from one check to the next, up to a tenth more or less
	Timeout  time.Duration // of one check, until the end of the response

	Healthy   int // passes in a row that make the unhealthy healthy
	Unhealthy int // failures in a row that make the healthy unhealthy

	// Strict means that an endpoint is Down until its first pass, and while it is unhealthy.
	Strict bool

	// TLS returns the configuration of a GET to addr, which was resolved from host or "". nil
	// means plain text.
	TLS func(addr, host string) *tls.Config
}

// pause returns the time to the next check. It varies, so that sidecars do not check in step.
func (c *Check) pause() time.Duration {
	return c.Interval*9/10 + rand.N(c.Interval/5+1)
}

// asker makes the checks, each on a new connection: an application that accepts no connection
// is down, even if its old connections work.
type asker struct {
	check  *Check
	path   string                   // of the request; "" means a TCP connect
	other  func(addr string) string // see Options.Other
	client http.Client
}

// addressFor returns the address that is asked for the endpoint at addr.
func (a *asker) addressFor(addr string) (string, error) {
	if !a.check.elsewhere() {
		return addr, nil
	}
	host, port := a.check.Host, strconv.Itoa(a.check.Port)
	if host != "" && a.check.Port != 0 {
		return net.JoinHostPort(host, port), nil
	}
	if unixaddr.Is(addr) {
		return "", fmt.Errorf("%s has no host and port: check.host and check.port are both needed", addr)
	}
	ofHost, ofPort, err := net.SplitHostPort(addr)
	if err != nil {
		return "", err
	}
	if a.check.Port == 0 {
		port = ofPort
	}
	return net.JoinHostPort(cmp.Or(host, ofHost), port), nil
}

// configKey is the key of the *tls.Config in the context of a check.
type configKey struct{}

func newAsker(c *Check, other func(addr string) string) *asker {
	a := &asker{check: c, path: c.Path, other: other}
	transport := &http.Transport{
		DisableKeepAlives: true, Proxy: nil, MaxResponseHeaderBytes: maxHeader, DialContext: a.dial, DialTLSContext: a.dialTLS,
	}
	if c.GRPC != "" {
		a.path, transport.Protocols = healthPath, new(http.Protocols)
		transport.Protocols.SetHTTP2(true)
		transport.Protocols.SetUnencryptedHTTP2(true)
	}
	a.client = http.Client{
		Timeout: c.Timeout, Transport: transport,
		// A redirect is a response; its target may be another application.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return a
}

// dialTLS connects to the address of ctx by TLS.
func (a *asker) dialTLS(ctx context.Context, network, addr string) (net.Conn, error) {
	c, _ := ctx.Value(configKey{}).(*tls.Config)
	nc, err := a.dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	if c.ServerName == "" {
		c = c.Clone()
		c.ServerName, _, _ = net.SplitHostPort(addr)
	}
	over := tls.Client(nc, c)
	if err := over.HandshakeContext(ctx); err != nil {
		_ = nc.Close()
		return nil, err
	}
	return over, nil
}

// dial connects to the address of ctx, or to its other one. If ctx has none, it connects to addr.
func (a *asker) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if at, ok := ctx.Value(endpointAddress{}).(string); ok {
		network, addr = unixaddr.Split(at)
	}
	other, _ := ctx.Value(otherAddress{}).(string)
	return eyeballs.Dial(ctx, eyeballs.Both(addr, other), func(ctx context.Context, addr string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, addr)
	})
}

// endpointAddress is the key of the address that a check asks, in its context.
type endpointAddress struct{}

// otherAddress is the key of the second address that a check may ask, in its context.
type otherAddress struct{}

// withOther returns ctx with the second address to ask for the endpoint at addr, if it has one.
func (a *asker) withOther(ctx context.Context, addr string) context.Context {
	if a.other == nil || a.check.Host != "" { // the check's own host has other addresses, or none
		return ctx
	}
	other := a.other(addr)
	if other != "" {
		other, _ = a.addressFor(other) // can't fail: other has a port
	}
	return context.WithValue(ctx, otherAddress{}, other)
}

// authorityOf returns what stands for an address in a URL, which has no Unix sockets. Zones of IPv6 addresses mean nothing to the
// server (RFC 6874 section 4).
func authorityOf(addr string) string {
	if unixaddr.Is(addr) {
		return "localhost"
	}
	if at, err := netip.ParseAddrPort(addr); err == nil {
		return netip.AddrPortFrom(at.Addr().WithZone(""), at.Port()).String()
	}
	return addr
}

// ask returns nil if addr passes: it accepts a connection, responds to the GET with a status from 200
// to 399, or says that it is serving gRPC. host is the name that addr was resolved from, or "".
func (a *asker) ask(ctx context.Context, addr, host string) error {
	ctx = a.withOther(ctx, addr)
	addr, err := a.addressFor(addr)
	if err != nil {
		return err
	}
	if a.path == "" {
		ctx, cancel := context.WithTimeout(ctx, a.client.Timeout)
		defer cancel()
		network, address := unixaddr.Split(addr)
		conn, err := a.dial(ctx, network, address)
		if err != nil {
			return err
		}
		return conn.Close()
	}
	scheme, name, authority := "http://", "", authorityOf(addr)
	ctx = context.WithValue(ctx, endpointAddress{}, addr)
	if a.check.TLS != nil {
		c := a.check.TLS(addr, host)
		if a.check.GRPC != "" {
			c = c.Clone()
			c.NextProtos = []string{"h2"}
		}
		scheme, name, ctx = "https://", c.ServerName, context.WithValue(ctx, configKey{}, c)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+authority+a.path, nil)
	if err != nil {
		return err
	}
	req.Host = name // a server of several names wants the one that was asked for; "" means addr
	req.Header.Set("User-Agent", "remora-check")
	if a.check.GRPC != "" {
		a.prepareGRPC(req)
	}
	resp, err := a.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if a.check.GRPC != "" {
		if err := judgeGRPC(resp); err != nil {
			return fmt.Errorf("grpc.health.v1 of %s, service %q: %w", addr, a.check.GRPC, err)
		}
		return nil
	}
	_, _ = io.CopyN(io.Discard, resp.Body, maxBody)
	if resp.StatusCode < 200 || resp.StatusCode > 399 {
		return fmt.Errorf("GET %s: status %s", req.URL, resp.Status)
	}
	return nil
}
