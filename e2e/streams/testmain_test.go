// Package streams tests what is no message: tunnels, upgrades, long bodies, interim responses, and bytes of TCP.
package streams

import (
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
