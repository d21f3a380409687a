// Package load tests load of which no request may fail while sidecars are reloaded, replaced, drained and killed.
package load

import (
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
