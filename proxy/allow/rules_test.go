package allow

import (
	"testing"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/config"
)

// TestRules: one set of rules is enough, of the listener, the route or the service. A set that only counts refuses nothing. The
// service's rules see the path that a route has rewritten, the others that of the client.
func TestRules(t *testing.T) {
	set := func(enforce bool, path string) *Set {
		return NewSet("s", &config.Allow{Enforce: enforce, Rules: []config.AllowRule{{Path: []string{path}}}}, nil)
	}
	const client, rewritten = "/client", "/rewritten"
	for _, c := range []struct {
		name                     string
		rules                    Rules
		given, enforced, refuses bool
	}{
		{"none", Rules{}, false, false, false},
		{"listener", Rules{Listener: set(true, client)}, true, true, false},
		{"listener, another path", Rules{Listener: set(true, rewritten)}, true, true, true},
		{"route", Rules{Route: set(true, client)}, true, true, false},
		{"route, another path", Rules{Route: set(true, rewritten)}, true, true, true},
		{"service", Rules{Service: set(true, rewritten)}, true, true, false},
		{"service, another path", Rules{Service: set(true, client)}, true, true, true},
		{"all only count", Rules{set(false, "/a"), set(false, "/b"), set(false, "/c")}, true, false, false},
		{"the last one refuses", Rules{set(false, "/a"), set(false, "/b"), set(true, "/c")}, true, true, true},
	} {
		call := Call{Req: &protocol.Request{Method: []byte("GET"), Path: []byte(rewritten)}, Path: []byte(client)}
		given, enforced, refuses := c.rules.Given(), c.rules.Enforced(), c.rules.Refuse(&call, "", quiet)
		if given != c.given || enforced != c.enforced || refuses != c.refuses {
			t.Errorf("%s: given %v, enforced %v, refuses %v", c.name, given, enforced, refuses)
		}
	}
	stream := Call{}
	if r := (&Rules{Service: set(true, client)}); !r.Refuse(&stream, "", quiet) {
		t.Error("a stream of bytes passes rules about paths")
	}
}
