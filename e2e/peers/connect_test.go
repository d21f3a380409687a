package peers

import (
	"context"
	encoding "encoding/binary"
	"flag"
	"net"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/e2e/harness/h2"
	"github.com/remora-proxy/remora/internal/must"
)

// scripts/connect.sh sets it.
var connectWays = flag.String("connect-ways", "", "run Connect's conformance suite on these ways: direct, one, two")

// connectFeatures are what of the suite is about gRPC.
const connectFeatures = `
features:
  versions: [HTTP_VERSION_2]
  protocols: [PROTOCOL_GRPC]
  codecs: [CODEC_PROTO]
  supports_h2c: true
  supports_tls: false
  supports_tls_client_certs: false
`

// connectServer runs the reference server at a port. The suite reads where it listens from its
// output: once the server has said so, the file $1 says it in its place.
const connectServer = `exec referenceserver -port "$0" > >(head -c 1 >/dev/null; cat "$1"; exec cat >/dev/null)`

// TestConnectConformance runs Connect's conformance suite for servers of gRPC.
func TestConnectConformance(t *testing.T) {
	if *connectWays == "" {
		t.Skip("needs other programs: see scripts/connect.sh")
	}
	for _, way := range strings.Split(*connectWays, ",") {
		t.Run(way, func(t *testing.T) {
			addr, dir := harness.FreeAddrs(t, 1)[0], t.TempDir()
			features, says := filepath.Join(dir, "features.yaml"), filepath.Join(dir, "says")
			must.WriteFile(t, features, connectFeatures)
			must.WriteFile(t, says, listensAt(t, interopWays[way](t, addr)))
			_, port, _ := net.SplitHostPort(addr)
			ctx, cancel := context.WithTimeout(t.Context(), 5*harness.Patience)
			defer cancel()
			cmd := exec.CommandContext(ctx, "connectconformance", "--mode", "server", "--conf", features, "--max-servers", "1",
				"--", "bash", "-c", connectServer, port, says)
			cmd.WaitDelay = time.Second
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(out), " passed, 0 failed") {
				t.Errorf("%v\n%s", err, out)
			}
			t.Logf("%s", out)
		})
	}
}

// listensAt returns a ServerCompatResponse of the suite, with its length before it: field 1 is the
// host, field 2 the port.
func listensAt(t *testing.T, addr string) []byte {
	at, err := netip.ParseAddrPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	host := at.Addr().String()
	b := append([]byte{1<<3 | 2, byte(len(host))}, host...)
	b = encoding.AppendUvarint(append(b, 2<<3), uint64(at.Port()))
	return append(h2.Word(uint32(len(b))), b...)
}
