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
