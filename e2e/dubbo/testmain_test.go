// Package dubbo tests calls of Dubbo, and requests of HTTP that become calls.
package dubbo

import (
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
