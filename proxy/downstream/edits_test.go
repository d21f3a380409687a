package downstream

import (
	"testing"

	"github.com/remora-proxy/remora/internal/racetest"
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/route"
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
