package stream

import (
	"io"
	"net"
	"testing"

	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/protocol/link"
)

// TestFetchedFromBefore: what is parked with a process, or with the one before that,
// is fetched by way of the last one; whoever has no token is refused.
func TestFetchedFromBefore(t *testing.T) {
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
		next.srv.before = at
	}
	b, at := third.before(), third.links()
	for _, s := range []*sidecar{third, second, first} {
		h := http1.Head{Framing: http1.FixedLength, Length: 9}
		src, server := s.source(a, h, "early")
		token, ok := s.srv.Park(src)
		if !ok {
			t.Fatal("not parked")
		}
		client := s.fetched(b, at, token, h)
		wantRead(t, "the client", client, "head|early")
		_, _ = io.WriteString(server, "late")
		wantRead(t, "the client", client, "late")
		if _, err := io.ReadAll(client); err != nil {
			t.Error(err)
		}
		server.Close()
	}
	refusesStrangers(t, second.srv.before)
}

// refusesStrangers wants nothing but a reason for a token that was never issued.
func refusesStrangers(t *testing.T, parking string) {
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
		t.Errorf("without a token one gets %q, %v", b, err)
	}
}

// TestForget: nobody is led to the address of a process that has ended, which may be
// another's by now.
func TestForget(t *testing.T) {
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
	s.srv.before = other.Addr().String()
	s.srv.Forget()
	parking, err := s.srv.Parking()
	if err != nil {
		t.Fatal(err)
	}
	refusesStrangers(t, parking)
}
