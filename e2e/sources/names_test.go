package sources

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/remora-proxy/remora/internal/must"
)

// nameServer has the addresses of names below test. It answers over UDP that an answer of many addresses is too long, and over TCP with
// all of them.
type nameServer struct {
	mu     sync.Mutex
	ttl    byte                    // seconds
	addrs  map[string][]netip.Addr // by the name, without the domain
	silent bool                    // no query gets an answer
	gone   bool                    // there are no names
}

func (s *nameServer) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// publish makes these the addresses of the name compute.test, with a TTL of a second.
func (s *nameServer) publish(addrs []string, _ string) error {
	s.set(func() { s.ttl = 1; s.put("compute", addrs) })
	return nil
}

// put makes these the addresses of a name. The caller holds mu.
func (s *nameServer) put(name string, addrs []string) {
	s.addrs[name] = nil
	for _, a := range addrs {
		s.addrs[name] = append(s.addrs[name], netip.MustParseAddr(a))
	}
}

// many publishes the names of services, with a TTL of half a minute.
func (s *nameServer) many(services int) error {
	s.set(func() {
		s.ttl = 30
		for i := range services {
			s.put(manyName(i), manyAddrs(i))
		}
	})
	return nil
}

// maxPacket is how many addresses an answer over UDP has at most.
const maxPacket = 25

// answer returns the answer to a query (RFC 1035 section 4.1), or nil for none.
func (s *nameServer) answer(query []byte, overUDP bool) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	const header = 12
	if s.silent || len(query) < header {
		return nil
	}
	name := bytes.IndexByte(query[header:], 0)
	if name < 0 || len(query) < header+name+5 {
		return nil
	}
	question := query[header : header+name+5]
	label, domain := question[1:1+min(int(question[0]), name)], question[1+min(int(question[0]), name):]
	all, known := s.addrs[string(label)]
	known = known && !s.gone && bytes.HasPrefix(domain, []byte("\x04test\x00"))
	isA := binary.BigEndian.Uint16(question[name+1:]) == 1
	flags := uint16(0x8180)
	var addrs []netip.Addr
	switch {
	case !known:
		flags |= 3 // no such name
	case isA && overUDP && len(all) > maxPacket:
		flags |= 0x0200 // truncated
	case isA:
		addrs = all
	}
	out := append([]byte{}, query[:2]...)
	for _, n := range []uint16{flags, 1, uint16(len(addrs)), 0, 0} {
		out = binary.BigEndian.AppendUint16(out, n)
	}
	out = append(out, question...)
	for _, a := range addrs {
		out = append(out, 0xc0, header, 0, 1, 0, 1, 0, 0, 0, s.ttl, 0, 4) // the name of the question, A, IN, the TTL, 4 bytes
		out = append(out, a.AsSlice()...)
	}
	return out
}

func (s *nameServer) servePackets(pc net.PacketConn) {
	buffer := make([]byte, 4096)
	for {
		n, from, err := pc.ReadFrom(buffer)
		if err != nil {
			return
		}
		if answer := s.answer(buffer[:n], true); answer != nil {
			_, _ = pc.WriteTo(answer, from)
		}
	}
}

func (s *nameServer) serveConnections(ln net.Listener) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			var length [2]byte
			if _, err := io.ReadFull(c, length[:]); err != nil {
				return
			}
			query := make([]byte, binary.BigEndian.Uint16(length[:]))
			if _, err := io.ReadFull(c, query); err != nil {
				return
			}
			if answer := s.answer(query, false); answer != nil {
				_, _ = c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...))
			}
		}()
	}
}

// namesSource are host names, of a name server of their own. The sidecar has an /etc/resolv.conf that names the server, in a
// mount namespace.
func namesSource(t *testing.T) *source {
	if err := exec.Command("unshare", "--mount", "true").Run(); err != nil {
		t.Skipf("no mount namespace: %v", err)
	}
	s := &nameServer{addrs: map[string][]netip.Addr{}}
	at := fmt.Sprintf("127.%d.0.53", 1+rand.IntN(250))
	pc, err := net.ListenPacket("udp", net.JoinHostPort(at, "53"))
	if err != nil {
		t.Skipf("no name server: %v", err)
	}
	ln, err := net.Listen("tcp", net.JoinHostPort(at, "53"))
	if err != nil {
		t.Fatal(err)
	}
	go s.servePackets(pc)
	go s.serveConnections(ln)
	t.Cleanup(func() { pc.Close(); ln.Close() })
	conf := filepath.Join(t.TempDir(), "resolv.conf")
	must.WriteFile(t, conf, "nameserver "+at+"\n")
	return &source{
		find: `discover: static, endpoints: ["NAME.test:PORT"]`, publish: s.publish, many: s.many, linger: 25,
		command: func(args ...string) *exec.Cmd {
			const mount = `mount --bind "$0" /etc/resolv.conf && exec "$@"`
			cmd := exec.Command("unshare", append([]string{"--mount", "sh", "-c", mount, conf}, args...)...)
			cmd.Env = append(os.Environ(), "GODEBUG=netdns=go")
			return cmd
		},
		faults: []fault{
			{name: "silent", begin: func() { s.set(func() { s.silent = true }) }, end: func() { s.set(func() { s.silent = false }) }, code: "unresolved", isLong: true},
			{name: "name removed", begin: func() { s.set(func() { s.gone = true }) }, end: func() { s.set(func() { s.gone = false }) }, code: "unresolved", isLong: true},
		},
	}
}
