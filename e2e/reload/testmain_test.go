// Package reload tests changes of the configuration while a sidecar runs.
package reload

import (
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
