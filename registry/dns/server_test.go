package dns

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/remora-proxy/remora/internal/must"
)

// host is a server's data for a name.
type host struct {
	addrs  []string
	ttl    uint32   // of addrs
	alias  string   // the name that has the records
	short  uint32   // TTL of the alias
	srv    []string // "priority weight port target", with TTL ttl
	rcode  dnsmessage.RCode
	rcode4 dnsmessage.RCode // for queries for IPv4 addresses, if rcode is success
	long   bool             // too long for UDP
}

// server is a name server on UDP and TCP sockets of 127.0.0.1.
type server struct {
	udp, tcp string

	mu    sync.Mutex
	hosts map[string]host // by name with a trailing dot
	asked chan string     // the name of each query for IPv4 addresses
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{hosts: map[string]host{}, asked: make(chan string, 1000)}
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln := must.Listen(t)
	s.udp, s.tcp = pc.LocalAddr().String(), ln.Addr().String()
	var tasks sync.WaitGroup
	tasks.Go(func() { s.servePackets(pc) })
	tasks.Go(func() { s.serveConnections(ln) })
	t.Cleanup(func() { pc.Close(); ln.Close(); tasks.Wait() })
	return s
}

func (s *server) set(name string, h host) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hosts[name+"."] = h
}

// dial connects to the server, whatever name server the resolver wants.
func (s *server) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	addr := s.tcp
	if network == "udp" {
		addr = s.udp
	}
	return new(net.Dialer).DialContext(ctx, network, addr)
}

func (s *server) servePackets(pc net.PacketConn) {
	buf := make([]byte, 64<<10)
	for {
		n, from, err := pc.ReadFrom(buf)
		if err != nil {
			return
		}
		if answer, err := s.answer(buf[:n], true); err == nil {
			_, _ = pc.WriteTo(answer, from)
		}
	}
}

func (s *server) serveConnections(ln net.Listener) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		_ = s.serveOne(c)
		c.Close()
	}
}

// serveOne responds to one query, in segments of one byte.
func (s *server) serveOne(c net.Conn) error {
	var length [2]byte
	if _, err := io.ReadFull(c, length[:]); err != nil {
		return err
	}
	query := make([]byte, binary.BigEndian.Uint16(length[:]))
	if _, err := io.ReadFull(c, query); err != nil {
		return err
	}
	answer, err := s.answer(query, false)
	if err != nil {
		return err
	}
	for _, b := range append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...) {
		if _, err := c.Write([]byte{b}); err != nil {
			return err
		}
	}
	return nil
}

// answer returns the response to a query.
func (s *server) answer(query []byte, packet bool) ([]byte, error) {
	var m dnsmessage.Message
	if err := m.Unpack(query); err != nil || len(m.Questions) != 1 {
		return nil, errors.Join(err, errors.New("not one question"))
	}
	q := m.Questions[0]
	s.mu.Lock()
	h, known := s.hosts[q.Name.String()]
	s.mu.Unlock()
	m = dnsmessage.Message{Header: dnsmessage.Header{ID: m.ID, Response: true, RecursionAvailable: true, RCode: h.rcode}, Questions: m.Questions}
	if !known {
		m.RCode = dnsmessage.RCodeNameError
	}
	if q.Type == dnsmessage.TypeA {
		s.asked <- q.Name.String()
		m.RCode = max(m.RCode, h.rcode4)
	}
	if m.Truncated = h.long && packet; m.Truncated || m.RCode != dnsmessage.RCodeSuccess {
		return m.Pack()
	}
	name := q.Name
	if h.alias != "" {
		to := dnsmessage.MustNewName(h.alias + ".")
		m.Answers = append(m.Answers, record(name, h.short, &dnsmessage.CNAMEResource{CNAME: to}))
		name = to
	}
	for _, text := range h.addrs {
		switch a := netip.MustParseAddr(text); {
		case a.Is4() && q.Type == dnsmessage.TypeA:
			m.Answers = append(m.Answers, record(name, h.ttl, &dnsmessage.AResource{A: a.As4()}))
		case a.Is6() && q.Type == dnsmessage.TypeAAAA:
			m.Answers = append(m.Answers, record(name, h.ttl, &dnsmessage.AAAAResource{AAAA: a.As16()}))
		}
	}
	for _, text := range h.srv {
		var r dnsmessage.SRVResource
		var target string
		if _, err := fmt.Sscan(text, &r.Priority, &r.Weight, &r.Port, &target); err != nil {
			return nil, err
		}
		if r.Target = dnsmessage.MustNewName(target); q.Type == dnsmessage.TypeSRV {
			m.Answers = append(m.Answers, record(name, h.ttl, &r))
		}
	}
	return m.Pack()
}

func record(name dnsmessage.Name, ttl uint32, body dnsmessage.ResourceBody) dnsmessage.Resource {
	return dnsmessage.Resource{
		Header: dnsmessage.ResourceHeader{Name: name, Class: dnsmessage.ClassINET, TTL: ttl}, Body: body,
	}
}
