// Package grpc tests calls and streams of grpc-go.
package grpc

import (
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
