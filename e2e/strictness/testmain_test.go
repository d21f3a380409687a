// Package strictness tests the corpus of protocol/http1/testdata, and what other servers and proxies make of it.
package strictness

import (
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
