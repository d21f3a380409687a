// Package restart tests hot restarts, signals, and neighbouring versions.
package restart

import (
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
