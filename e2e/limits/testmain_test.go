// Package limits tests limits of connections, requests and descriptors, and priorities.
package limits

import (
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
