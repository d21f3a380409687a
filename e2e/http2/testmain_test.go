// Package http2 tests HTTP/2, of clients and to endpoints.
package http2

import (
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
