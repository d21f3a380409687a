// Package attacks tests what limits and timeouts are for: clients, peers and endpoints that misuse a sidecar beside a well-behaved load.
package attacks

import (
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
