package exchange_test

import (
	"testing"

	"github.com/remora-proxy/remora/proxy/exchange"
)

// TestExampleOfChanged: the log has the host and the path of the client, not those of the service.
func TestExampleOfChanged(t *testing.T) {
	var ex exchange.Exchange
	ex.Request.Authority, ex.OriginalHost = []byte("b"), []byte("a")
	ex.Request.Path, ex.OriginalPath = []byte("/v2"), []byte("/v1")
	if e := ex.Example(); string(e.Host) != "a" || string(e.Path) != "/v1" {
		t.Errorf("%s %s", e.Host, e.Path)
	}
}
