package dns

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// Answer is what a host name resolves to.
type Answer struct {
	Addrs []netip.Addr
	TTL   time.Duration // negative: not known, as of a name from /etc/hosts

	// Lacks is why it is not known whether there are IPv4 addresses, where Addrs
	// has IPv6 ones alone; nil: there are none.
	Lacks error
}

// resolver is Go's own resolver, which heeds /etc/hosts, /etc/nsswitch.conf and
// /etc/resolv.conf with its search list, but does not tell how long an answer
// holds. That is read from the messages that pass its connections: a client of
// our own would have to do all the rest again. Release builds, which are without
// cgo, know no other resolver.
type resolver struct {
	dial func(ctx context.Context, network, address string) (net.Conn, error)
}

func (r resolver) lookup(ctx context.Context, host string) (Answer, error) {
	seen := ttl{lowest: -1}
	res := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := r.dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		if udp, ok := c.(*net.UDPConn); ok {
			return packets{udp, &seen}, nil
		}
		return &segments{Conn: c, seen: &seen}, nil
	}}
	addrs, err := res.LookupNetIP(ctx, "ip", host)
	a := Answer{Addrs: addrs}
	if err == nil && !slices.ContainsFunc(addrs, isIPv4) {
		a.complete(ctx, res, host)
	}
	seen.mu.Lock()
	defer seen.mu.Unlock()
	a.TTL = seen.lowest
	return a, err
}

// complete asks for the IPv4 addresses apart. Two queries run side by side, and one
// that fails is not told from one that finds nothing. To have the lookup fail then
// (StrictErrors) would be no better: there are name servers that fail on IPv6 for
// ever, and names that have nothing else.
func (a *Answer) complete(ctx context.Context, res *net.Resolver, host string) {
	res.StrictErrors = true
	addrs, err := res.LookupNetIP(ctx, "ip4", host)
	a.Addrs = append(a.Addrs, addrs...)
	if failed, ok := err.(*net.DNSError); ok && !failed.IsNotFound {
		a.Lacks = err
	}
}

func isIPv4(a netip.Addr) bool { return a.Unmap().Is4() }

// packets is a connection that carries a message per packet. The resolver knows
// it by its being a net.PacketConn.
type packets struct {
	*net.UDPConn
	seen *ttl
}

// Read implements net.Conn.
func (p packets) Read(b []byte) (int, error) {
	n, err := p.UDPConn.Read(b)
	p.seen.note(b[:n])
	return n, err
}

// segments is a connection with a length before each message (RFC 1035, section
// 4.2.2). The resolver reads one message from it.
type segments struct {
	net.Conn
	seen *ttl
	got  []byte
}

// Read implements net.Conn.
func (s *segments) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	s.got = append(s.got, b[:n]...)
	if len(s.got) >= 2 && len(s.got)-2 >= int(binary.BigEndian.Uint16(s.got)) {
		s.seen.note(s.got[2:])
	}
	return n, err
}

// ttl is the lowest one of the records that led to addresses. The queries for
// IPv4 and IPv6 run side by side.
type ttl struct {
	mu     sync.Mutex
	lowest time.Duration // negative: none yet
}

// note takes in a message from a server. One that the resolver refuses, such as a
// forged one, may change the TTL, which is bounded for that too.
func (t *ttl) note(msg []byte) {
	var p dnsmessage.Parser
	if h, err := p.Start(msg); err != nil || h.RCode != dnsmessage.RCodeSuccess || h.Truncated {
		return
	}
	if p.SkipAllQuestions() != nil {
		return
	}
	lowest, leads := time.Duration(-1), false
	for {
		h, err := p.AnswerHeader()
		if err == dnsmessage.ErrSectionDone {
			break
		}
		if err != nil || p.SkipAnswer() != nil {
			return
		}
		leads = leads || h.Type == dnsmessage.TypeA || h.Type == dnsmessage.TypeAAAA
		lowest = lower(lowest, time.Duration(h.TTL)*time.Second)
	}
	if leads {
		t.mu.Lock()
		t.lowest = lower(t.lowest, lowest)
		t.mu.Unlock()
	}
}

// lower is the lower of two, of which a negative one is none.
func lower(a, b time.Duration) time.Duration {
	if a < 0 {
		return b
	}
	return min(a, b)
}
