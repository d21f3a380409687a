package dns

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
	"strings"
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
	seen := trail{host: host, lowest: -1}
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
		if name, _ := seen.found(); name != "" {
			a.complete(ctx, res, name)
		}
	}
	_, a.TTL = seen.found()
	return a, err
}

// complete asks for the IPv4 addresses apart. Two queries run side by side, and one
// that fails is not told from one that finds nothing. To have the lookup fail then
// (StrictErrors) would be no better: there are name servers that fail on IPv6 for
// ever, and names that have nothing else. name is rooted: along the search list there
// may be another that has IPv4 addresses, of another host.
func (a *Answer) complete(ctx context.Context, res *net.Resolver, name string) {
	res.StrictErrors = true
	addrs, err := res.LookupNetIP(ctx, "ip4", name)
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
	seen *trail
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
	seen *trail
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

// trail is what messages tell of the way to the addresses of host. The queries for
// IPv4 and IPv6 run side by side.
type trail struct {
	host string // as it was asked for

	mu     sync.Mutex
	lowest time.Duration // TTL of the records that led to addresses; negative: none yet
	six    string        // the name, rooted, that has IPv6 addresses; "": none yet
}

// found returns what has been noted: a name, or "", and the TTL.
func (t *trail) found() (six string, lowest time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.six, t.lowest
}

// note takes in a message from a server. One that the resolver refuses, such as a
// forged one, may change the TTL, which is bounded for that too, and the name, which
// is host or host with a domain behind it.
func (t *trail) note(msg []byte) {
	var p dnsmessage.Parser
	if h, err := p.Start(msg); err != nil || h.RCode != dnsmessage.RCodeSuccess || h.Truncated {
		return
	}
	asked, err := p.AllQuestions()
	if err != nil {
		return
	}
	lowest, leads, six := time.Duration(-1), false, ""
	for {
		h, err := p.AnswerHeader()
		if err == dnsmessage.ErrSectionDone {
			break
		}
		if err != nil || p.SkipAnswer() != nil {
			return
		}
		leads = leads || h.Type == dnsmessage.TypeA || h.Type == dnsmessage.TypeAAAA
		if h.Type == dnsmessage.TypeAAAA && len(asked) == 1 {
			six = asked[0].Name.String()
		}
		lowest = lower(lowest, time.Duration(h.TTL)*time.Second)
	}
	if !leads {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lowest = lower(t.lowest, lowest)
	if strings.HasPrefix(strings.ToLower(six), strings.ToLower(strings.TrimSuffix(t.host, "."))+".") {
		t.six = six
	}
}

// lower is the lower of two, of which a negative one is none.
func lower(a, b time.Duration) time.Duration {
	if a < 0 {
		return b
	}
	return min(a, b)
}
