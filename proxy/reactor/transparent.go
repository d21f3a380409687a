package reactor

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/proxy/loop"
)

// Transparent is for a Listener to which the kernel redirects connections that
// were going elsewhere (iptables REDIRECT). Of those, the ones that speak HTTP/1
// come to the loops; they know where they were going (loop.Conn.OriginalDst). A
// connection that was made to the listener itself comes to a loop in any case, and
// has no original destination: to go on there would be a loop.
//
// The first bytes are read before the loops, because a half-close behind them
// would be the end of the connection there.
type Transparent struct {
	// Wait is how long a client may take to show that it speaks HTTP/1. One
	// that says nothing may be waiting for its server to speak first. More
	// than 0.
	Wait time.Duration

	// Pass takes over any other connection, as that of downstream.Streams does. Any
	// goroutine calls it.
	Pass func(s loop.Socket, to netip.AddrPort, first []byte)
}

// firstRead is how much is read at once of a connection's first bytes. There may
// be as many of them as there are connections.
const firstRead = 1 << 10

// diverted tells whether nc, accepted for c, is passed on. If not, c knows what
// was read of it.
func (l *Listener) diverted(c *conn, nc *net.TCPConn) bool {
	to := l.eng.originalDst(nc)
	if !to.IsValid() {
		return false
	}
	first, isHTTP := l.first(nc)
	if isHTTP {
		c.original, c.early = to, first
		return false
	}
	l.opts.Transparent.Pass(c.leave(nc), to, first)
	return true
}

// first reads until it is known whether nc speaks HTTP/1; what ends or fails
// before that does not.
func (l *Listener) first(nc *net.TCPConn) (b []byte, isHTTP bool) {
	_ = nc.SetReadDeadline(time.Now().Add(l.opts.Transparent.Wait))
	awake := context.AfterFunc(l.eng.ctx, func() { _ = nc.SetReadDeadline(time.Unix(1, 0)) })
	defer func() {
		awake()
		_ = nc.SetReadDeadline(time.Time{})
	}()
	var is http1.Detector
	for {
		b = slices.Grow(b, firstRead)
		n, err := nc.Read(b[len(b):cap(b)])
		verdict := is.Feed(b[len(b) : len(b)+n])
		b = b[:len(b)+n]
		if verdict != http1.Undecided || err != nil {
			return b, verdict == http1.IsHTTP
		}
	}
}

// originalDst asks the kernel's connection tracking where nc was going. The zero
// value: it was not redirected, or to the listener that it was going to.
func originalDst(nc *net.TCPConn) (to netip.AddrPort) {
	local, ok := nc.LocalAddr().(*net.TCPAddr)
	sc, err := nc.SyscallConn()
	if !ok || err != nil {
		return netip.AddrPort{}
	}
	ask := originalDst6
	if local.IP.To4() != nil { // on a listener of both kinds too
		ask = originalDst4
	}
	if sc.Control(func(fd uintptr) { to, err = ask(int(fd)) }) != nil || err != nil {
		return netip.AddrPort{}
	}
	at := local.AddrPort()
	if to == netip.AddrPortFrom(at.Addr().Unmap(), at.Port()) {
		return netip.AddrPort{}
	}
	return to
}

// originalDst4 reads a sockaddr_in as the 20 bytes of an ipv6_mreq: package unix
// has no call for this option (linux/netfilter_ipv4.h), and that one is as long.
func originalDst4(fd int) (netip.AddrPort, error) {
	r, err := unix.GetsockoptIPv6Mreq(fd, unix.SOL_IP, unix.SO_ORIGINAL_DST)
	if err != nil {
		return netip.AddrPort{}, err
	}
	b := r.Multiaddr
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), binary.BigEndian.Uint16(b[2:4])), nil
}

// originalDst6 reads a sockaddr_in6 as the address that begins an ip6_mtuinfo
// (linux/netfilter_ipv6/ip6_tables.h: the option has the same number).
func originalDst6(fd int) (netip.AddrPort, error) {
	r, err := unix.GetsockoptIPv6MTUInfo(fd, unix.SOL_IPV6, unix.SO_ORIGINAL_DST)
	if err != nil {
		return netip.AddrPort{}, err
	}
	ip := netip.AddrFrom16(r.Addr.Addr)
	if ip.IsLinkLocalUnicast() {
		ip = ip.WithZone(strconv.Itoa(int(r.Addr.Scope_id)))
	}
	var port [2]byte // in network order
	binary.NativeEndian.PutUint16(port[:], r.Addr.Port)
	return netip.AddrPortFrom(ip, binary.BigEndian.Uint16(port[:])), nil
}
