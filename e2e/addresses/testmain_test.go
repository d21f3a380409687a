// Package addresses tests where listeners listen: addresses that change, Unix sockets, both families, and behind the PROXY protocol.
package addresses

import (
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
