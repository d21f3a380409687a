package dns

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/remora-proxy/remora/internal/eyeballs"
	"github.com/remora-proxy/remora/internal/srvname"
)

// Answer is the result of resolving a host name.
type Answer struct {
	Addrs   []netip.Addr
	Targets []Target      // in place of Addrs, if the name is that of SRV records
	TTL     time.Duration // negative means unknown
	OfHost  bool          // this host itself has Addrs for the name, in /etc/hosts

	// IPv4Err is the error of the lookup of IPv4 addresses, if Addrs has only IPv6 ones. nil
	// means that there are no IPv4 addresses.
	IPv4Err error
}

// resolver is Go's own resolver. It obeys /etc/hosts, /etc/nsswitch.conf and /etc/resolv.conf
// with its search list, but does not return how long an answer is valid. That is read from the
// messages on its connections; a client of our own would have to implement all the rest.
// Release builds are without cgo and have no other resolver.
type resolver struct {
	dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// hostsTTL is the TTL of a name from /etc/hosts, which has none. To look it up again costs little: package net
// reads the file at most every 5 s, and only if it has changed.
const hostsTTL = 3 * time.Second

func (r resolver) lookup(ctx context.Context, host string) (Answer, error) {
	if addrs := eyeballs.Loopback(host); addrs != nil {
		return Answer{Addrs: addrs, TTL: maxTTL, OfHost: true}, nil
	}
	if srvname.Is(host) {
		return r.lookupSRV(ctx, host)
	}
	seen := &messageRecord{host: host, lowest: -1}
	res := r.recording(seen)
	addrs, err := res.LookupNetIP(ctx, "ip", host)
	a := Answer{Addrs: addrs}
	if err == nil && !slices.ContainsFunc(addrs, isIPv4) {
		if name, _ := seen.found(); name != "" {
			a.complete(ctx, res, name)
		}
	}
	if _, a.TTL = seen.found(); err == nil && !seen.asked.Load() {
		a.TTL, a.OfHost = hostsTTL, true
	}
	return a, err
}

// recording returns a resolver whose messages seen records.
func (r resolver) recording(seen *messageRecord) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		seen.asked.Store(true)
		c, err := r.dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		if udp, ok := c.(*net.UDPConn); ok {
			return packets{udp, seen}, nil
		}
		return &segments{Conn: c, seen: seen}, nil
	}}
}

// complete looks up the IPv4 addresses separately. The resolver sends both queries at once,
// and does not distinguish a failed query from an empty answer. Failing the lookup instead
// (StrictErrors) would be no better: some name servers always fail on IPv6, and some names
// have nothing else. name is rooted: the search list could lead to another host with IPv4
// addresses.
func (a *Answer) complete(ctx context.Context, res *net.Resolver, name string) {
	res.StrictErrors = true
	addrs, err := res.LookupNetIP(ctx, "ip4", name)
	a.Addrs = append(a.Addrs, addrs...)
	if failed, ok := err.(*net.DNSError); ok && !failed.IsNotFound {
		a.IPv4Err = err
	}
}

func isIPv4(a netip.Addr) bool { return a.Unmap().Is4() }

// packets is a connection with one message per packet: to the resolver a net.PacketConn.
type packets struct {
	*net.UDPConn
	seen *messageRecord
}

// Read implements net.Conn.
func (p packets) Read(b []byte) (int, error) {
	n, err := p.UDPConn.Read(b)
	p.seen.note(b[:n])
	return n, err
}

// segments is a connection with a length before each message (RFC 1035, section 4.2.2). The
// resolver reads one message from it.
type segments struct {
	net.Conn
	seen *messageRecord
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

// messageRecord records the messages that led to the addresses or targets of host. The queries for IPv4
// and IPv6 are concurrent.
type messageRecord struct {
	host  string      // as requested
	srv   bool        // targets are wanted
	asked atomic.Bool // a server was asked, so the name is not from /etc/hosts

	mu     sync.Mutex
	lowest time.Duration // lowest TTL of the records that led to what is wanted; negative means none yet
	six    string        // the rooted name with IPv6 addresses; "" means none yet
}

func (t *messageRecord) found() (six string, lowest time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.six, t.lowest
}

func (t *messageRecord) wants(kind dnsmessage.Type) bool {
	if t.srv {
		return kind == dnsmessage.TypeSRV
	}
	return kind == dnsmessage.TypeA || kind == dnsmessage.TypeAAAA
}

// note records a message from a server. A message that the resolver refuses, such as a forged
// one, may still change the TTL and the name. So the TTL is limited, and the name must be host
// or host with a domain appended.
func (t *messageRecord) note(msg []byte) {
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
		leads = leads || t.wants(h.Type)
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

// lower returns the lower of two TTLs; negative means none.
func lower(a, b time.Duration) time.Duration {
	if a < 0 {
		return b
	}
	return min(a, b)
}
