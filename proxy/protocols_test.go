package proxy

import (
	"slices"
	"testing"

	"github.com/remora-proxy/remora/proxy/config"
)

// sameNames fails unless a list has exactly the names that the configuration allows.
func sameNames(t *testing.T, list string, got, want []string) {
	t.Helper()
	if got, want := slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want)); !slices.Equal(got, want) {
		t.Errorf("%s has %v, the configuration allows %v", list, got, want)
	}
}

// TestProtocolList: each protocol of the configuration has its line in the list, and
// each line is a protocol of the configuration.
func TestProtocolList(t *testing.T) {
	sameNames(t, "protocols", Protocols(), config.Protocols)
	for _, p := range protocols {
		if p.newAcceptor == nil || p.newConnector == nil {
			t.Errorf("%s lacks an acceptor or a connector", p.name)
		}
	}
	if protocolOf(fallbackProtocol).name != fallbackProtocol {
		t.Errorf("the fallback %s is not in the list", fallbackProtocol)
	}
}

// TestLocalListeners: all clients of a listener are on its host if others can't reach its address, and no proxy is in front.
func TestLocalListeners(t *testing.T) {
	for _, c := range []struct {
		address string
		trust   []string
		want    bool
	}{
		{"127.0.0.1:1", nil, true}, {"127.8.8.8:1", nil, true}, {"[::1]:1", nil, true}, {"unix:/run/a", nil, true}, {"unix:@a", nil, true},
		{"0.0.0.0:1", nil, false}, {"[::]:1", nil, false}, {"10.0.0.1:1", nil, false}, {":1", nil, false}, {"name:1", nil, false},
		{"127.0.0.1:1", []string{"127.0.0.1"}, false}, {"unix:/run/a", []string{"127.0.0.1"}, false},
	} {
		l := newListener(&config.Listener{Address: c.address, Protocol: config.ProtocolHTTP, ProxyProtocol: config.ProxyProtocol{Trust: c.trust}}, 2)
		if len(l.perLoop) != 2 || l.perLoop[0].Local != c.want || l.perLoop[1].Local != c.want || l.perLoop[0].Sidecars {
			t.Errorf("%s, proxies %q: %+v, want %t", c.address, c.trust, l.perLoop[0].Local, c.want)
		}
	}
	if l := newListener(&config.Listener{Address: "127.0.0.1:1", Protocol: config.ProtocolLink}, 1); !l.perLoop[0].Sidecars || l.perLoop[0].Secure {
		t.Error("the peers of a listener of links are sidecars")
	}
	secure := config.Listener{Address: "127.0.0.1:1", Protocol: config.ProtocolHTTP}
	if secure.TLS.Cert = "c"; !newListener(&secure, 1).perLoop[0].Secure {
		t.Error("a listener with tls is not secure")
	}
}
