package proxy_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
	"github.com/remora-proxy/remora/registry"
)

// BenchmarkRequest measures what the access log adds to a request through one sidecar,
// without the kernel. BenchmarkShape has requests of more kinds.
func BenchmarkRequest(b *testing.B) {
	body := strings.Repeat("x", 300)
	response := "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 200\r\n\r\n" + body[:200]
	for _, c := range []struct{ name, log string }{
		{"off", ""}, {"sample=0.01", "access_log: {path: /log, sample: 0.01}"}, {"all", "access_log: {path: /log}"},
	} {
		b.Run("access log "+c.name, func(b *testing.B) {
			benchmarkRequest(b, proxytest.AllocMeshOptions{Response: response, Hops: 1, Top: c.log})
		})
	}
}

func benchmarkRequest(b *testing.B, o proxytest.AllocMeshOptions) {
	o.Clients = 64
	m := proxytest.NewAllocMesh(b, o)
	body := strings.Repeat("x", 300)
	request := []byte(postHead + body)
	for n := 0; n < b.N; n += o.Clients {
		m.Call([]byte(body[:200]), request)
	}
}

// BenchmarkTraced measures what tracing adds: nothing if it is off, a search of the headers
// and a random number if the request is not sampled, else a record at each sidecar.
func BenchmarkTraced(b *testing.B) {
	response := "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
	for _, c := range []struct{ name, tracing string }{
		{"off", ""}, {"unsampled", unsampled}, {"sampled", strings.Replace(unsampled, "sample: 0", "sample: 1", 1)},
	} {
		b.Run(c.name, func(b *testing.B) {
			const clients = 64
			m := proxytest.NewAllocMesh(b, proxytest.AllocMeshOptions{Response: response, Hops: 2, Clients: clients, Top: c.tracing})
			request := []byte("GET / HTTP/1.1\r\nHost: compute\r\n\r\n")
			b.ReportAllocs()
			for n := 0; n < b.N; n += clients {
				m.Call(nil, request)
			}
		})
	}
}

// BenchmarkReport measures how long a scrape, or the dashboard, keeps a loop from its
// requests.
func BenchmarkReport(b *testing.B) {
	m := proxytest.NewAllocMesh(b, proxytest.AllocMeshOptions{Response: "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", Hops: 1})
	const endpoints = 200
	var list []registry.Endpoint
	for i := range endpoints {
		list = append(list, registry.Endpoint{Addr: fmt.Sprintf("10.0.1.%d:1", i), Weight: 1})
	}
	m.Consumer.Update(registry.NewSnapshot("compute", registry.SourceLive, time.Time{}, list))
	m.Net.Pump()
	m.Net.Advance(2 * stats.MillisecondsKept * time.Millisecond)
	w := m.Consumer.Workers()[0]
	b.Run("report", func(b *testing.B) {
		for range b.N {
			_ = w.Report(stats.Forecasts)
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/endpoints, "ns/endpoint")
	})
	b.Run("milliseconds=all", func(b *testing.B) {
		for range b.N {
			_, _ = w.Milliseconds("", 0)
		}
	})
	b.Run("milliseconds=250", func(b *testing.B) {
		end, _ := w.Milliseconds("", 0)
		for range b.N {
			_, _ = w.Milliseconds("", end.End()-250)
		}
	})
}
