// Package fleet tests sidecars that are steered by overlays in etcd, and the commands for it.
package fleet

import (
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
