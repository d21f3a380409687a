package admin

import (
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"
	"time"
)

const observedServices = `
listeners: [{name: egress, address: "127.0.0.1:15001", protocol: http}]
routes:
  - {match: {path: /other}, service: other, hedge: {mode: on, delay: 3ms}}
  - {service: compute, hedge: {mode: on, delay: 3ms}}
services:
  compute: {discover: static, endpoints: ["10.0.9.9:1"], protocol: http, connect_timeout: 15s}
  other: {discover: static, endpoints: ["10.0.9.9:1"], protocol: http, connect_timeout: 15s}
`

// discard is a client that discards the response.
type discard struct{ header http.Header }

func (d discard) Header() http.Header           { return d.header }
func (discard) Write(b []byte) (n int, _ error) { return len(b), nil }
func (discard) WriteHeader(int)                 {}

// BenchmarkScrape measures the CPU time of a scrape, with two services of three endpoints
// each that have served requests.
func BenchmarkScrape(b *testing.B) {
	s := newSidecar(b, observedServices)
	for _, service := range []string{"compute", "other"} {
		s.update(service, newApp(b), newApp(b), newApp(b))
	}
	for range 50 {
		s.request("GET", "/")
		s.request("GET", "/other")
	}
	for name, accept := range map[string]string{"plain": "", "gzip": "gzip"} {
		b.Run(name, func(b *testing.B) {
			r := httptest.NewRequest("GET", "http://127.0.0.1:9901/metrics", nil)
			r.Header.Set("Accept-Encoding", accept)
			b.ReportAllocs()
			before := cpuTime(b)
			for b.Loop() {
				s.api.http.Handler.ServeHTTP(discard{http.Header{}}, r)
			}
			b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N), "cpu-ns/op")
		})
	}
}

// cpuTime returns the CPU time of the process, which unlike elapsed time does not depend
// on other processes.
func cpuTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
