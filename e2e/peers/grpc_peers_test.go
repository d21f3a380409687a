package peers

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/e2e/harness"
)

// scripts/grpc.sh sets these.
var (
	grpcPeers = flag.String("grpc-peers", "", "test gRPC between libraries: --all or --short")
	grpcWays  = flag.String("grpc-ways", "direct,one,two", "ways of the calls")
)

var grpcLanguages = []string{"go", "java", "grpcio"}

// interopCases are the cases of gRPC's interop test that each library has.
var interopCases = []string{
	"empty_unary", "large_unary", "client_streaming", "server_streaming", "ping_pong", "empty_stream",
	"timeout_on_sleeping_server", "cancel_after_begin", "cancel_after_first_response", "status_code_and_message",
	"special_status_message", "custom_metadata", "unimplemented_method", "unimplemented_service",
}

// moreInteropCases are those that some have, by client, with the servers that pass them without
// a sidecar. The grpc-go server knows no gzip, that of grpcio reports no load, and both take
// messages of 4 MiB at most.
var moreInteropCases = map[string]map[string][]string{
	"go": {"orca_per_rpc": {"go", "java"}, "orca_oob": {"go", "java"}},
	"java": {
		"orca_per_rpc": {"go", "java"}, "orca_oob": {"go", "java"}, "very_large_request": {"java"}, "pick_first_unary": grpcLanguages,
		"server_compressed_unary": grpcLanguages, "server_compressed_streaming": grpcLanguages,
		"client_compressed_unary_noprobe": {"java", "grpcio"}, "client_compressed_streaming_noprobe": {"java", "grpcio"},
		"rpc_soak": grpcLanguages, "channel_soak": grpcLanguages,
	},
	"grpcio": {"client_compressed_unary": {"java", "grpcio"}, "server_compressed_unary": grpcLanguages},
}

// waysTo returns, by name, the ways to a server that speaks a protocol: each returns the address at which a client
// reaches the server at addr.
func waysTo(protocol string) map[string]func(t *testing.T, addr string) string {
	return map[string]func(t *testing.T, addr string) string{
		"direct": func(_ *testing.T, addr string) string { return addr },
		"one":    func(t *testing.T, addr string) string { return passingOn(t, "http", protocol, addr) },
		"two": func(t *testing.T, addr string) string {
			return passingOn(t, "http", "link", passingOn(t, "link", protocol, addr))
		},
	}
}

var interopWays = waysTo("grpc")

// passingOn starts a sidecar with one listener and one service, and returns the address of the listener.
func passingOn(t *testing.T, listens, speaks, endpoint string) (addr string) {
	t.Helper()
	addr = harness.FreeAddrs(t, 1)[0]
	p := harness.Start(t, fmt.Sprintf(`
loops: 2
listeners: [{name: in, address: %q, protocol: %s, service: interop}]
services: {interop: {discover: static, endpoints: [%q], protocol: %s, connect_timeout: 15s, timeout: 1m}}`, addr, listens, endpoint, speaks))
	p.Ready()
	return addr
}

// TestGRPCPeers runs gRPC's interop test between its libraries.
func TestGRPCPeers(t *testing.T) {
	if *grpcPeers == "" {
		t.Skip("needs other programs: see scripts/grpc.sh")
	}
	program, err := filepath.Abs("../../scripts/grpc/peer.sh")
	if err != nil {
		t.Fatal(err)
	}
	for i, server := range grpcLanguages {
		addr, dir := harness.FreeAddrs(t, 1)[0], t.TempDir()
		_, port, _ := net.SplitHostPort(addr)
		startPeer(t, dir, addr, program, server, "server", port)
		for j, client := range grpcLanguages {
			if *grpcPeers == "--short" && i != (j+1)%len(grpcLanguages) {
				continue
			}
			for _, way := range strings.Split(*grpcWays, ",") {
				t.Run(fmt.Sprintf("%s to %s, %s", client, server, way), func(t *testing.T) {
					t.Parallel()
					runInterop(t, program, client, server, interopWays[way](t, addr))
				})
			}
		}
	}
}

// runInterop runs a client's cases.
func runInterop(t *testing.T, program, client, server, addr string) {
	cases := slices.Clone(interopCases)
	for name, servers := range moreInteropCases[client] {
		if slices.Contains(servers, server) {
			cases = append(cases, name)
		}
	}
	_, port, _ := net.SplitHostPort(addr)
	runCases(t, cases, append([]string{program, client, "client", port}, cases...)...)
}

// runCases runs a program that prints a line "ok CASE" or "FAIL CASE WHY" for each case, and
// makes a test of each.
func runCases(t *testing.T, cases []string, argv ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*harness.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.WaitDelay = time.Second
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	verdicts := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if verdict, rest, _ := strings.Cut(strings.TrimSpace(line), " "); verdict == "ok" || verdict == "FAIL" {
			name, why, _ := strings.Cut(rest, " ")
			verdicts[name] = verdict + " " + why
		}
	}
	for _, name := range cases {
		t.Run(name, func(t *testing.T) {
			if verdict := verdicts[name]; verdict != "ok " {
				t.Errorf("%q", verdict)
			}
		})
	}
	if err != nil {
		t.Errorf("%s: %v", argv[0], err)
	}
	if t.Failed() {
		t.Log(said.String())
	}
}

// scripts/triple.sh sets it: the class path of a provider and a consumer of Dubbo 3.
var triplePeers = flag.String("triple-peers", "", "test Dubbo 3's Triple with this class path")

// TestTriplePeers: Dubbo 3 calls Dubbo 3, unary and by streams.
func TestTriplePeers(t *testing.T) {
	if *triplePeers == "" {
		t.Skip("needs other programs: see scripts/triple.sh")
	}
	addr := harness.FreeAddrs(t, 1)[0]
	program := func(class, addr string) []string {
		_, port, _ := net.SplitHostPort(addr)
		return []string{"java", "-Xmx1g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", *triplePeers, "dev.remora.triple." + class, port}
	}
	startPeer(t, t.TempDir(), addr, program("Provider", addr)...)
	for _, way := range []string{"direct", "one", "two"} {
		t.Run(way, func(t *testing.T) {
			runCases(t, []string{"echo", "echo_nothing", "echo_6MiB", "attachment", "exception", "deadline",
				"server_stream", "client_stream", "ping_pong"}, program("Caller", interopWays[way](t, addr))...)
		})
	}
}
