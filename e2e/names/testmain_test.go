// Package names tests which name a request is for: CONNECT, absolute targets, names without a route, and direct requests.
package names

import (
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
