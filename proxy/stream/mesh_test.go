package stream

import (
	"io"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/registry"
)

// inFront returns a new sidecar whose endpoint is s.
func (s *sidecar) inFront() *sidecar {
	s.t.Helper()
	b := newSidecar(s.t, options{})
	b.update(registry.Endpoint{Addr: s.entry.linkAddr(), Weight: 1, Protocol: config.ProtocolLink})
	return b
}

// withSidecars calls test with one sidecar in front of the application, and with two.
func withSidecars(t *testing.T, app string, test func(t *testing.T, first *sidecar)) {
	t.Run("one sidecar", func(t *testing.T) {
		s := newSidecar(t, options{more: "via: on"}, app)
		test(t, s)
		s.counts.waitIdle()
		s.counts.wantNoMemory()
	})
	t.Run("two sidecars", func(t *testing.T) {
		s := newSidecar(t, options{more: "via: on"}, app)
		b := s.inFront()
		test(t, b)
		for _, s := range []*sidecar{b, s} {
			s.counts.waitIdle()
			s.counts.wantNoMemory()
		}
	})
}

// TestOpaqueMesh: opaque bytes, half-close and resets pass through two sidecars.
func TestOpaqueMesh(t *testing.T) {
	a := newApp(t)
	withSidecars(t, a.addr, func(t *testing.T, s *sidecar) {
		client, server := s.pair(a)
		question := strings.Repeat("question", 1<<17)
		go func() {
			_, _ = io.WriteString(client, question)
			_ = client.CloseWrite()
		}()
		if got, err := io.ReadAll(server); string(got) != question || err != nil {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		_, _ = io.WriteString(server, "server")
		server.Close()
		if got, err := io.ReadAll(client); string(got) != "server" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		client, server = s.pair(a)
		(&end{conn: server, tcp: server}).reset()
		wantReset(t, "the client", client)
	})
}
