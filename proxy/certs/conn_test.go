package certs

import (
	"crypto/tls"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"github.com/remora-proxy/remora/internal/testcerts"
)

// counted counts the writes of a connection.
type counted struct {
	net.Conn
	writes atomic.Int32
}

func (c *counted) Write(b []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(b)
}

// TestFullRecords: the first output of a connection goes in full records, each of which costs a system call at the peer.
func TestFullRecords(t *testing.T) {
	ca := testcerts.New(t)
	d := testcerts.NewDir(t, ca, nil, nil)
	d.Rotate(ca.Issue(testcerts.Leaf{Names: []string{"a.test"}}))
	link, overHTTP := open(t, d, "a.test"), openHTTP(t, d, HTTP{})
	for name, ends := range map[string][2]*tls.Config{
		"link": {link.Server(), link.Client()},
		"HTTP": {overHTTP.Server(), overHTTP.ClientFor("127.0.0.1:1", "a.test")},
	} {
		a, b := connected(t)
		server, client := &counted{Conn: a}, &counted{Conn: b}
		s, c := tls.Server(server, ends[0]), tls.Client(client, ends[1])
		done := make(chan error, 1)
		go func() { done <- s.Handshake() }()
		if err := c.Handshake(); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		for who, end := range map[string]struct {
			wire     *counted
			from, to *tls.Conn
		}{"server": {server, s, c}, "client": {client, c, s}} {
			end.wire.writes.Store(0)
			if _, err := end.from.Write(make([]byte, 8<<10)); err != nil {
				t.Fatal(err)
			}
			if n := end.wire.writes.Load(); n != 1 {
				t.Errorf("%s, %s: 8 KiB went in %d records", name, who, n)
			}
			if _, err := io.ReadFull(end.to, make([]byte, 8<<10)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestLinkNotResumed: a link shows its certificate at each handshake, even if a client would resume its session.
func TestLinkNotResumed(t *testing.T) {
	ca := testcerts.New(t)
	d := testcerts.NewDir(t, ca, nil, nil)
	d.Rotate(ca.Issue(testcerts.Leaf{Names: []string{"a.test"}}))
	s := open(t, d, "a.test")
	client := s.Client().Clone()
	client.ServerName = "a.test"
	client.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	for range 2 {
		if resumed(t, s.Server(), client) {
			t.Error("the session was resumed")
		}
	}
}
