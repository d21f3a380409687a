package grpc

import (
	"crypto/tls"
	"fmt"
	"io"
	"slices"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/testcerts"
)

// TestGRPCOverTLS: a client with TLS calls a server with TLS through one sidecar and through two. The
// server is asked for the name that the service has, or for the authority of the call.
func TestGRPCOverTLS(t *testing.T) {
	ca := testcerts.New(t)
	web := harness.CertFiles(t, ca, "web.test")
	for _, sni := range []string{"web.test", "host"} {
		for _, hops := range []int{1, 2} {
			t.Run(fmt.Sprintf("%s, hops %d", sni, hops), func(t *testing.T) {
				keys := &tls.Config{Certificates: []tls.Certificate{harness.Pair(t, web)}}
				server := harness.ServeGRPC(t, &harness.GRPCApp{}, grpc.Creds(credentials.NewTLS(keys)))
				addrs := harness.FreeAddrs(t, 2)
				service := fmt.Sprintf("endpoints: [%q], protocol: grpc, tls: {ca: %q, sni: %s}", server, web.CA, sni)
				if hops == 2 {
					harness.Start(t, fmt.Sprintf(`
listeners: [{name: ingress, address: %q, protocol: link, service: local}]
services: {local: {discover: static, %s, connect_timeout: 15s}}`, addrs[1], service)).Ready()
					service = fmt.Sprintf("endpoints: [%q], protocol: link", addrs[1])
				}
				harness.Start(t, fmt.Sprintf(`
listeners: [{name: egress, address: %q, protocol: http, service: app, tls: {cert: %q, key: %q}}]
services: {app: {discover: static, %s, connect_timeout: 15s, timeout: 50s}}`, addrs[0], web.Cert, web.Key, service)).Ready()

				conn := harness.DialGRPC(t, addrs[0], grpc.WithTransportCredentials(credentials.NewTLS(harness.Trusting(ca))))
				harness.CallsAndStreams(t, pb.NewTestServiceClient(conn))
				listServices(t, grpc_reflection_v1.NewServerReflectionClient(conn))
			})
		}
	}
}

// listServices asks the server by reflection for its services, and for the file of one.
func listServices(t *testing.T, client grpc_reflection_v1.ServerReflectionClient) {
	s, err := client.ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ask := func(req *grpc_reflection_v1.ServerReflectionRequest) *grpc_reflection_v1.ServerReflectionResponse {
		if err := s.Send(req); err != nil {
			t.Fatal(err)
		}
		resp, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	const name = "grpc.testing.TestService"
	list := ask(&grpc_reflection_v1.ServerReflectionRequest{MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_ListServices{}})
	var names []string
	for _, s := range list.GetListServicesResponse().GetService() {
		names = append(names, s.Name)
	}
	if want := []string{"grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection", name}; !slices.Equal(names, want) {
		t.Errorf("services %v, want %v", names, want)
	}
	file := ask(&grpc_reflection_v1.ServerReflectionRequest{
		MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: name},
	})
	if len(file.GetFileDescriptorResponse().GetFileDescriptorProto()) == 0 {
		t.Errorf("no file: %v", file)
	}
	_ = s.CloseSend()
	if _, err := s.Recv(); err != io.EOF {
		t.Errorf("the end: %v", err)
	}
}
