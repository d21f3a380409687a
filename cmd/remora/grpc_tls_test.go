package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"slices"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"github.com/remora-proxy/remora/internal/testcerts"
)

// TestGRPCOverTLS: a client with TLS calls a server with TLS through one sidecar and through two. The
// server is asked for the name that the service has, or for the authority of the call.
func TestGRPCOverTLS(t *testing.T) {
	ca := testcerts.New(t)
	web := webFiles(t, ca, "web.test")
	for _, sni := range []string{"web.test", "host"} {
		for _, hops := range []int{1, 2} {
			t.Run(fmt.Sprintf("%s, hops %d", sni, hops), func(t *testing.T) {
				keys := &tls.Config{Certificates: []tls.Certificate{pair(t, web)}}
				server := serveGRPC(t, &grpcApp{}, grpc.Creds(credentials.NewTLS(keys)))
				addrs := freeAddrs(t, 2)
				service := fmt.Sprintf("endpoints: [%q], protocol: grpc, tls: {ca: %q, sni: %s}", server, web.CA, sni)
				if hops == 2 {
					startRemora(t, fmt.Sprintf(`
listeners: [{name: ingress, address: %q, protocol: link, service: local}]
services: {local: {discover: static, %s, connect_timeout: 15s}}`, addrs[1], service)).ready()
					service = fmt.Sprintf("endpoints: [%q], protocol: link", addrs[1])
				}
				startRemora(t, fmt.Sprintf(`
listeners: [{name: egress, address: %q, protocol: http, service: app, tls: {cert: %q, key: %q}}]
services: {app: {discover: static, %s, connect_timeout: 15s, timeout: 50s}}`, addrs[0], web.Cert, web.Key, service)).ready()

				conn, err := grpc.NewClient("passthrough:///"+addrs[0], grpc.WithTransportCredentials(credentials.NewTLS(trusting(ca))))
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				callsAndStreams(t, pb.NewTestServiceClient(conn))
				listServices(t, grpc_reflection_v1.NewServerReflectionClient(conn))
			})
		}
	}
}

// callsAndStreams makes one unary call, and one that is a stream both ways.
func callsAndStreams(t *testing.T, client pb.TestServiceClient) {
	r, err := client.UnaryCall(t.Context(), &pb.SimpleRequest{ResponseSize: 1000})
	if err != nil || len(r.Payload.GetBody()) != 1000 {
		t.Errorf("unary call: %v", err)
	}
	both, err := client.FullDuplexCall(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		if err := both.Send(&pb.StreamingOutputCallRequest{Payload: &pb.Payload{Body: make([]byte, i*10_000)}}); err != nil {
			t.Fatal(err)
		}
		if m, err := both.Recv(); err != nil || len(m.Payload.GetBody()) != i*10_000 {
			t.Fatalf("message %d: %v", i, err)
		}
	}
	_ = both.CloseSend()
	if _, err := both.Recv(); status.Code(err) != codes.DataLoss {
		t.Errorf("the end: %v", err)
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
