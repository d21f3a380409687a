package collapse

import (
	"testing"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/caching"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/identity"
)

type peer struct {
	exchange.Caller
	names *identity.Names
}

func (p peer) PeerNames() *identity.Names { return p.names }

// TestNamesOfPeers: no header makes the request of one peer that of another.
func TestNamesOfPeers(t *testing.T) {
	f := &filter{ids: caching.NewIdentity(nil, nil)}
	seen := map[string]int{}
	for i, c := range []struct {
		names  *identity.Names
		header protocol.Header
	}{
		{names: nil},
		{names: &identity.Names{DNS: []string{"host.a"}}},
		{names: &identity.Names{URIs: []string{"host.a"}}},
		{names: &identity.Names{DNS: []string{"b", "host.a"}}},
		{header: protocol.Header{Name: []byte("Cookie"), Value: []byte("ost.a")}},
	} {
		ex := exchange.NewPool(nil).Exchange(peer{names: c.names})
		if c.header.Name != nil {
			ex.Request.Headers = []protocol.Header{c.header}
		}
		key := string(f.appendKey(nil, ex))
		if j, ok := seen[key]; ok {
			t.Errorf("%d is the same as %d", i, j)
		}
		seen[key] = i
	}
}
