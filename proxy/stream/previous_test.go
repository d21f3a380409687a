package stream

import (
	"io"
	"net"
	"testing"

	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/shard"
)

// TestFetchFromPrevious: a response that is parked in a previous process, or in the one
// before it, is fetched through the last process. An unknown token is refused.
func TestFetchFromPrevious(t *testing.T) {
	a := newApp(t)
	first, second, third := newSidecar(t, options{}, a.addr), newSidecar(t, options{}, a.addr), newSidecar(t, options{}, a.addr)
	for old, next := range map[*sidecar]*sidecar{first: second, second: third} {
		at, err := old.srv.Parking()
		if err != nil {
			t.Fatal(err)
		}
		if again, err := old.srv.Parking(); again != at || err != nil {
			t.Errorf("parking at %s, then at %s, %v", at, again, err)
		}
		next.srv.parking.previous = at
	}
	b, at := third.inFront(), third.entry.linkAddr()
	for _, s := range []*sidecar{third, second, first} {
		h := http1.Head{Framing: http1.FixedLength, Length: 9}
		src, server := s.entry.source(a, h, "early")
		token, ok := s.srv.Park(src, shard.Client{})
		if !ok {
			t.Fatal("not parked")
		}
		client := b.fetch(at, token, h)
		wantRead(t, "the client", client, "head|early")
		_, _ = io.WriteString(server, "late")
		wantRead(t, "the client", client, "late")
		if _, err := io.ReadAll(client); err != nil {
			t.Error(err)
		}
		server.Close()
	}
	wantUnknownTokenRefused(t, second.srv.parking.previous)
}

// wantUnknownTokenRefused checks that a token that was never issued is refused with a
// reason.
func wantUnknownTokenRefused(t *testing.T, parking string) {
	t.Helper()
	stranger, err := net.Dial("tcp", parking)
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	if _, err := stranger.Write(make([]byte, len(link.Token{}))); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(stranger); len(b) != 1 || err != nil {
		t.Errorf("an unknown token receives %q, %v", b, err)
	}
}

// TestForgetPrevious: after ForgetPrevious no token is sent to the previous address,
// where another process may listen.
func TestForgetPrevious(t *testing.T) {
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	go func() {
		if nc, err := other.Accept(); err == nil {
			_, _ = io.ReadFull(nc, make([]byte, len(link.Token{})))
			_, _ = io.WriteString(nc, "another's")
			nc.Close()
		}
	}()
	s := newSidecar(t, options{})
	s.srv.parking.previous = other.Addr().String()
	s.srv.ForgetPrevious()
	parking, err := s.srv.Parking()
	if err != nil {
		t.Fatal(err)
	}
	wantUnknownTokenRefused(t, parking)
}
