package bench

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/remora-proxy/remora/lab/load"
	"github.com/remora-proxy/remora/lab/steal"
)

// MeshRows are two hops with mutual TLS between them, of Envoy and of Remora, whose metrics are scraped. In the last row the
// second proxy calls the replica over a Unix socket. Two relays, which have neither TLS nor metrics, show what the system takes.
func MeshRows() []Row {
	remora := mesh(func(c, p *sidecar) { c.TLS, p.TLS = true, true })
	consumer, provider := envoy, envoy
	consumer.SecureOut, provider.SecureIn = true, true
	rows := []Row{
		{Name: "direct"},
		{Name: "relay-2", chain: []hop{relay, relay}},
		{Name: "envoy-mesh", chain: []hop{consumer, provider}},
		{Name: "remora-mesh", chain: remora},
		{Name: "remora-mesh-unix", chain: remora, replicas: replicas{unix: true}},
	}
	for _, r := range rows {
		for i := range r.chain {
			r.chain[i].Scraped = r.chain[i].program != Relay
		}
	}
	return rows
}

const (
	meshRate = 1000    // requests per second
	meshBody = 1 << 10 // bytes, of requests and of responses
)

// MeshLoad is the load for which Istio publishes what its proxies take
// (istio.io/latest/docs/ops/deployment/performance-and-scalability): 1,000 requests per second of 1 KB.
func MeshLoad(d time.Duration) Load {
	name := fmt.Sprintf("open loop, %d requests/s, 1 KiB each way", meshRate)
	return Load{Name: name, period: steal.Period, send: func(ctx context.Context, s *Stack) (*Result, error) {
		echo := strings.TrimSuffix(s.URL, computePath) + "/echo"
		return s.runLab(ctx, load.Options{Targets: []string{echo}, Rate: meshRate, Body: make([]byte, meshBody), Duration: d, Samples: true})
	}}
}

const megabytes = (1 << 20) / 1e6 // of a MiB

var meshColumns = []column{
	{"vCPU", Cores, "%.3f", 1, true, true},
	{"first proxy", FirstCores, "%.3f", 1, true, true},
	{"second proxy", SecondCores, "%.3f", 1, true, true},
	{"RSS of the first, MB", FirstRSS, "%.1f", megabytes, true, true},
	{"of the second, MB", SecondRSS, "%.1f", megabytes, true, true},
	{"CPU µs/request", CPU, "%.1f", 1, true, true},
	{"requests/s", Rate, "%.0f", 1, false, false},
	{"p50 µs", P50, "%.0f", 1, true, true},
	{"p99 µs", P99, "%.0f", 1, true, true},
	{"GC cycles", Collections, "%.0f", 1, false, false},
	{"stopped %", Stopped, "%.1f", 1, true, false},
}

// meshVerdicts judges the promises of the bench of meshes. At equal rates CPU per request has the ratio of the vCPUs. On a machine
// that is too slow for a row the rates differ, and only CPU per request can be compared.
func (s Samples) meshVerdicts() []Verdict {
	load := MeshLoad(0).Name
	verdicts := []Verdict{s.compare("vCPU of two sidecars at this rate", "remora-mesh", "envoy-mesh", load, CPU, 0.25)}
	for _, side := range []struct {
		name   string
		figure Figure
	}{{"first", FirstRSS}, {"second", SecondRSS}} {
		what := fmt.Sprintf("resident memory of the %s sidecar, %s, MiB (20 MB)", side.name, load)
		verdicts = append(verdicts, s.value(what, "remora-mesh", load, side.figure, 20/megabytes))
	}
	return verdicts
}
