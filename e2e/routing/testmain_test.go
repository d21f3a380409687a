// Package routing tests how a request finds its endpoint, and what is added to it or changed on the way.
package routing

import (
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
