package proxy

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/registry"
)

// oneOf returns the sorted values that the configuration allows for a field of T.
func oneOf[T any](t *testing.T, field string) []string {
	t.Helper()
	f, _ := reflect.TypeFor[T]().FieldByName(field)
	names := strings.Fields(f.Tag.Get("oneof"))
	if len(names) == 0 {
		t.Fatalf("%v.%s has no tag oneof", reflect.TypeFor[T](), field)
	}
	slices.Sort(names)
	return names
}

// sameNames fails unless a list has exactly the names that the configuration allows.
func sameNames(t *testing.T, list string, got, want []string) {
	t.Helper()
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("%s has %v, the configuration allows %v", list, got, want)
	}
}

// TestProtocolList: each protocol of the configuration has its line in the list, and
// each line is a protocol of the configuration.
func TestProtocolList(t *testing.T) {
	var all, accepted []string
	for _, p := range protocols {
		all = append(all, p.name)
		if p.newConnector == nil {
			t.Errorf("%s has no connector", p.name)
		}
		if p.newAcceptor != nil {
			accepted = append(accepted, p.name)
		}
		if err := registry.CheckProtocol(p.name); err != nil {
			t.Errorf("endpoints may not speak %s: %v", p.name, err)
		}
	}
	sameNames(t, "protocols", all, oneOf[config.Service](t, "Protocol"))
	sameNames(t, "protocols with an acceptor", accepted, oneOf[config.Listener](t, "Protocol"))
	if protocolOf(fallbackProtocol).name != fallbackProtocol {
		t.Errorf("the fallback %s is not in the list", fallbackProtocol)
	}
}

// TestPolicyList: each policy of the configuration has its line in lb.Policies, and each
// line is a policy of the configuration.
func TestPolicyList(t *testing.T) {
	sameNames(t, "lb.Policies", slices.Collect(maps.Keys(lb.Policies)), oneOf[config.LB](t, "Policy"))
	for name, policy := range lb.Policies {
		if policy == nil {
			t.Errorf("%s has no policy", name)
		}
	}
}
