package http2_test

import (
	"testing"

	"github.com/remora-proxy/remora/proxy/proxytest"
)

func TestMain(m *testing.M) { proxytest.Main(m) }
