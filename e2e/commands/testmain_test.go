// Package commands tests what an operator runs and reads: the commands, the access log, traces and profiles.
package commands

import (
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
