package dns

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// pieces is a connection that carries b in pieces of a fixed size.
type pieces struct {
	net.Conn
	b    []byte
	size int
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.b) == 0 {
		return 0, io.EOF
	}
	n := copy(b, p.b[:min(p.size, len(p.b))])
	p.b = p.b[n:]
	return n, nil
}

// FuzzNote notes any bytes as an answer of a name server. The TTL must be the lowest of
// an answer that leads to addresses, in one packet or in pieces. The pause until the
// next lookup must be within its limits.
func FuzzNote(f *testing.F) {
	name := dnsmessage.MustNewName("a.example.")
	four := record(name, 7, &dnsmessage.AResource{A: netip.MustParseAddr("10.0.0.1").As4()})
	alias := record(name, 3, &dnsmessage.CNAMEResource{CNAME: dnsmessage.MustNewName("b.example.")})
	forever := record(name, 1<<32-1, &dnsmessage.AAAAResource{})
	for _, answers := range [][]dnsmessage.Resource{nil, {four}, {alias}, {alias, four}, {forever}} {
		m := dnsmessage.Message{Header: dnsmessage.Header{Response: true}, Answers: answers,
			Questions: []dnsmessage.Question{{Name: name, Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}}}
		for _, kind := range []dnsmessage.Header{{}, {Truncated: true}, {RCode: dnsmessage.RCodeServerFailure}, {RCode: dnsmessage.RCodeNameError, Truncated: true}} {
			m.Truncated, m.RCode = kind.Truncated, kind.RCode
			b, err := m.Pack()
			if err != nil {
				f.Fatal(err)
			}
			f.Add(b, uint8(3))
			f.Add(b, uint8(0))
		}
	}
	f.Fuzz(func(t *testing.T, msg []byte, size uint8) {
		msg = msg[:min(len(msg), 1<<16-1)]
		packet, stream := messageRecord{lowest: -1}, messageRecord{lowest: -1}
		packet.note(msg)
		p := &pieces{b: append(binary.BigEndian.AppendUint16(nil, uint16(len(msg))), msg...), size: int(size) + 1}
		if _, err := io.ReadAll(&segments{Conn: p, seen: &stream}); err != nil {
			t.Fatal(err)
		}
		if packet.lowest != stream.lowest {
			t.Fatalf("%x: %v in a packet, %v in pieces", msg, packet.lowest, stream.lowest)
		}
		if d := (&Options{Interval: defaultInterval}).pause(packet.lowest, nil); d < minTTL || d > maxTTL+maxTTL/10 {
			t.Fatalf("%x: kept for %v", msg, d)
		}
		var m dnsmessage.Message
		if m.Unpack(msg) != nil {
			return
		}
		packed, err := m.Pack() // with correct lengths
		whole := messageRecord{lowest: -1}
		whole.note(packed)
		if err == nil && whole.lowest != lowestOf(&m) {
			t.Fatalf("%v is kept for %v, want %v", m.GoString(), whole.lowest, lowestOf(&m))
		}
	})
}

// TestLocalhost: no name server is asked for the names of this host.
func TestLocalhost(t *testing.T) {
	r := resolver{func(context.Context, string, string) (net.Conn, error) {
		t.Error("a name server is asked")
		return nil, io.EOF
	}}
	for _, host := range []string{"localhost", "LOCALHOST."} {
		a, err := r.lookup(t.Context(), host)
		if err != nil || len(a.Addrs) == 0 || a.TTL != maxTTL || !a.OfHost || a.IPv4Err != nil || len(a.Targets) > 0 {
			t.Errorf("%s: %+v, %v", host, a, err)
		}
		for _, ip := range a.Addrs {
			if !ip.IsLoopback() {
				t.Errorf("%s: %v", host, ip)
			}
		}
	}
}

// TestNoteName checks that the name with IPv6 addresses is the one in the question,
// whatever it is an alias of, and never one that is unrelated to the host.
func TestNoteName(t *testing.T) {
	four := func(n dnsmessage.Name) dnsmessage.Resource { return record(n, 7, &dnsmessage.AResource{}) }
	six := func(n dnsmessage.Name) dnsmessage.Resource { return record(n, 7, &dnsmessage.AAAAResource{}) }
	alias := func(n dnsmessage.Name) dnsmessage.Resource {
		return record(n, 7, &dnsmessage.CNAMEResource{CNAME: dnsmessage.MustNewName("far.test.")})
	}
	far := func(dnsmessage.Name) dnsmessage.Resource { return six(dnsmessage.MustNewName("far.test.")) }
	type answers []func(dnsmessage.Name) dnsmessage.Resource
	for _, c := range []struct {
		host, asked string
		answers     answers
		want        string
	}{
		{"db.example", "db.example.", answers{six}, "db.example."},
		{"db.example.", "db.example.", answers{six}, "db.example."},
		{"db", "db.corp.lan.", answers{six}, "db.corp.lan."},
		{"db.Example", "DB.example.", answers{six}, "DB.example."},
		{"db", "db.corp.lan.", answers{alias, far}, "db.corp.lan."},
		{"db", "db.corp.lan.", answers{alias}, ""},
		{"db", "db.corp.lan.", answers{four}, ""},
		{"db", "dbx.corp.lan.", answers{six}, ""},
		{"db", "evil.test.", answers{six}, ""},
	} {
		name := dnsmessage.MustNewName(c.asked)
		m := dnsmessage.Message{Header: dnsmessage.Header{Response: true},
			Questions: []dnsmessage.Question{{Name: name, Type: dnsmessage.TypeAAAA, Class: dnsmessage.ClassINET}}}
		for _, answer := range c.answers {
			m.Answers = append(m.Answers, answer(name))
		}
		b, err := m.Pack()
		if err != nil {
			t.Fatal(err)
		}
		seen := messageRecord{host: c.host, lowest: -1}
		seen.note(b)
		if got, _ := seen.found(); got != c.want {
			t.Errorf("%s, asked for %s: %q, want %q", c.host, c.asked, got, c.want)
		}
	}
}

// lowestOf returns the TTL of an answer, or a negative value if it has none.
func lowestOf(m *dnsmessage.Message) time.Duration {
	lowest, leads := time.Duration(-1), false
	for _, r := range m.Answers {
		leads = leads || r.Header.Type == dnsmessage.TypeA || r.Header.Type == dnsmessage.TypeAAAA
		lowest = lower(lowest, time.Duration(r.Header.TTL)*time.Second)
	}
	if !leads || m.Truncated || m.RCode != dnsmessage.RCodeSuccess {
		return -1
	}
	return lowest
}

// TestGoResolver: a build with cgo resolves names by Go's own resolver, too. The TTLs of another one would not be seen.
func TestGoResolver(t *testing.T) {
	if !(resolver{}).recording(&messageRecord{}).PreferGo {
		t.Error("a build with cgo may ask the resolver of the C library")
	}
}
