package proxytest

import (
	"flag"
	"os"
	"testing"

	"github.com/remora-proxy/remora/protocol"
)

// Main runs the tests of a package. Buffers that are given back are filled with a
// pattern, so that whoever still reads them sees it; not in benchmarks.
func Main(m *testing.M) {
	flag.Parse()
	protocol.PoisonBuffers = flag.Lookup("test.bench").Value.String() == ""
	os.Exit(m.Run())
}
