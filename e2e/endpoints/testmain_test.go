// Package endpoints tests endpoints that are down, refuse, or fail.
package endpoints

import (
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
