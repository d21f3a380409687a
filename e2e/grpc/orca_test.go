package grpc

import (
	"context"
	wire "encoding/binary"
	"fmt"
	"math"
	"net/http"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/must"
)

// busyApp reports its utilization with every response, as grpc-go's package orca does.
type busyApp struct {
	pb.UnimplementedTestServiceServer
	utilization float64
	calls       atomic.Int64
}

func (a *busyApp) EmptyCall(ctx context.Context, _ *pb.Empty) (*pb.Empty, error) {
	a.calls.Add(1)
	report := wire.LittleEndian.AppendUint64([]byte{6<<3 | 1}, math.Float64bits(100))                // rps_fractional
	report = wire.LittleEndian.AppendUint64(append(report, 9<<3|1), math.Float64bits(a.utilization)) // application_utilization
	return &pb.Empty{}, grpc.SetTrailer(ctx, metadata.Pairs("endpoint-load-metrics-bin", string(report)))
}

// sharesBy awaits that of 40 calls the endpoint with a third of the other's load gets three quarters.
func sharesBy(t *testing.T, idle *atomic.Int64, call func()) {
	t.Helper()
	eventually.Nil(t, "three quarters of the calls to go to the endpoint with less load", func() error {
		before := idle.Load()
		for range 40 {
			call()
		}
		if n := idle.Load() - before; n < 29 || n > 31 {
			return fmt.Errorf("%d of 40", n)
		}
		return nil
	})
}

// TestGRPCReportedLoad: endpoints get calls by the load that they report, with links and without.
func TestGRPCReportedLoad(t *testing.T) {
	for _, hops := range []int{1, 2} {
		t.Run(fmt.Sprintf("hops %d", hops), func(t *testing.T) {
			busy, idle := &busyApp{utilization: 0.9}, &busyApp{utilization: 0.3}
			m := startEndingMesh(t, hops, []string{harness.ServeGRPC(t, busy), harness.ServeGRPC(t, idle)}, ", lb: {policy: weighted_round_robin}")
			sharesBy(t, &idle.calls, func() {
				var end metadata.MD
				if _, err := m.client.EmptyCall(t.Context(), &pb.Empty{}, grpc.Trailer(&end)); err != nil {
					t.Fatal(err)
				}
				if got := end.Get("endpoint-load-metrics-bin"); len(got) != 1 || len(got[0]) != 18 {
					t.Fatalf("the caller got the report %q", got)
				}
			})
		})
	}
}

// TestHTTP2ReportedLoad: the same with HTTP and the report in a header.
func TestHTTP2ReportedLoad(t *testing.T) {
	var calls [2]atomic.Int64
	var addrs []string
	for i, report := range []string{"TEXT cpu_utilization=0.9, rps_fractional=100", `JSON {"cpuUtilization": 0.3, "rpsFractional": 100}`} {
		addrs = append(addrs, harness.StartHTTP2Endpoint(t, "127.0.0.1:0", func(w http.ResponseWriter, _ *http.Request) {
			calls[i].Add(1)
			w.Header().Set("Endpoint-Load-Metrics", report)
			fmt.Fprint(w, "done")
		}, nil).Addr)
	}
	_, url := harness.StartHTTP2Caller(t, addrs, ", connect_timeout: 15s, lb: {policy: weighted_round_robin}")
	sharesBy(t, &calls[1], func() {
		if resp, body := must.Do(t, http.DefaultClient, must.Request(t, http.MethodGet, url, nil)); resp.StatusCode != 200 || body != "done" {
			t.Fatalf("%d %q", resp.StatusCode, body)
		}
	})
}
