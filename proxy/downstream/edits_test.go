package downstream

import (
	"testing"

	"github.com/remora-proxy/remora/internal/racetest"
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/route"
	"github.com/remora-proxy/remora/proxy/shard"
)

// TestEditedMemory: an exchange keeps the values that were made for its last request, and no value of an earlier request.
func TestEditedMemory(t *testing.T) {
	edits := config.HeaderEdits{Set: map[string]string{"x-a": "{host}"}}
	r := &exchange.Route{Edits: route.NewEdits(&route.Plan{Route: &config.Route{RequestHeaders: edits, ResponseHeaders: edits}})}
	ex := &exchange.Exchange{}
	ex.Route = r
	from := &Origin{Listener: &exchange.Listener{}}
	for range 3 {
		ex.Request.Authority = []byte("compute")
		editRequest(r, ex, from)
		EditResponse(ex, new(protocol.Response), from)
		if got := string(ex.Edited); got != "computecompute" {
			t.Errorf("the exchange keeps %q", got)
		}
	}
}

// TestEditsOfRoute: a route changes the path of a request, and the host only if it gives another one. Values of a request,
// and of its response, are those that the client has sent. A response that comes after its exchange has ended is changed in
// the same way.
func TestEditsOfRoute(t *testing.T) {
	const value = "{host} {path} {listener} {peer}"
	set := config.HeaderEdits{Set: map[string]string{"x-a": value}}
	for _, c := range []struct {
		route                   config.Route
		host, request, response string
		noEdits                 bool // of the response
	}{
		{config.Route{RequestHeaders: set, ResponseHeaders: set}, "compute", "compute /a in 10.0.0.7", "compute /a in 10.0.0.7", false},
		{config.Route{ResponseHeaders: set, Rewrite: config.Rewrite{Host: "b"}}, "b", "", "compute /a in 10.0.0.7", false},
		{config.Route{RequestHeaders: set, Rewrite: config.Rewrite{Host: "b"}}, "b", "compute /a in 10.0.0.7", "", true},
	} {
		from := &Origin{Listener: &exchange.Listener{Name: "in"}, Addr: []byte("10.0.0.7")}
		c.route.Rewrite.Path = "/v1/"
		plan := &route.Plan{Match: new(config.Match), Route: &c.route}
		r := &exchange.Route{Edits: route.NewEdits(plan), Rewrite: route.NewRewrite(plan)}
		from.Listener.Fixed = r
		ex := &exchange.Exchange{}
		if ResponseEditor(ex, from) != nil {
			t.Error("the response to a request without a route is changed")
		}
		ex.Request.Authority, ex.Request.Path = []byte("compute"), []byte("/a")
		h := &Host{Shard: &shard.Shard{}}
		ex.Route = h.FindRoute(ex, from, nil)
		if path := string(ex.Request.Path); path != "/v1/a" || string(ex.OriginalPath) != "/a" {
			t.Errorf("path %s of %s", path, ex.OriginalPath)
		}
		if host, got := string(ex.Request.Authority), string(protocol.Find(ex.Request.Headers, "x-a")); host != c.host || got != c.request {
			t.Errorf("host %s, x-a: %s, want %s and %s", host, got, c.host, c.request)
		}
		var res, later protocol.Response
		EditResponse(ex, &res, from)
		edit := ResponseEditor(ex, from)
		if c.noEdits != (edit == nil) {
			t.Errorf("host %s: the response is changed later %t", c.host, edit != nil)
		}
		if edit != nil {
			copy(ex.OriginalPath, "xx") // the memory is used again
			edit(&later)
			if got := string(protocol.Find(later.Headers, "x-a")); got != c.response {
				t.Errorf("host %s: the response has x-a: %s later, want %s", c.host, got, c.response)
			}
		}
		if got := string(protocol.Find(res.Headers, "x-a")); got != c.response {
			t.Errorf("host %s: the response has x-a: %s, want %s", c.host, got, c.response)
		}
	}
	ex := &exchange.Exchange{}
	ex.Route = &exchange.Route{}
	if ResponseEditor(ex, &Origin{}) != nil {
		t.Error("the response of a route without edits is changed")
	}
}

// TestPathMemory: paths are brought into their form, and rewritten, in memory that the exchange keeps for its next request.
func TestPathMemory(t *testing.T) {
	l := &exchange.Listener{Paths: route.NewPathRules(&config.Path{Normalize: true, EscapedSlashes: config.SlashesKeep})}
	r := &exchange.Route{Rewrite: route.NewRewrite(&route.Plan{Match: new(config.Match), Route: &config.Route{Rewrite: config.Rewrite{Path: "/v1/"}}})}
	sent := []byte("/b/../%61")
	for _, c := range []struct {
		name, want         string
		normalize, rewrite bool
	}{
		{"normalized", "/a", true, false}, {"rewritten", "/v1/b/../%61", false, true}, {"both", "/v1/a", true, true},
	} {
		ex := &exchange.Exchange{}
		once := func() {
			ex.OriginalPath, ex.Request.Path = nil, sent
			if c.normalize {
				normalizePath(l, ex)
			}
			if c.rewrite {
				rewritePath(r, ex)
			}
		}
		if n := testing.AllocsPerRun(10, once); n > 0 && !racetest.Enabled {
			t.Errorf("%s: %v allocations", c.name, n)
		}
		if string(ex.Request.Path) != c.want || string(ex.OriginalPath) != string(sent) {
			t.Errorf("%s: %s of %s", c.name, ex.Request.Path, ex.OriginalPath)
		}
	}
}
