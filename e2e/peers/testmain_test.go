// Package peers tests sidecars between other programs. Most tests are skipped without the flags that their scripts
// set.
package peers

import (
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
