package main

import (
	"net"
	"time"

	"github.com/cloudwego/kitex/client"
	"github.com/cloudwego/kitex/pkg/connpool"
	"github.com/cloudwego/kitex/pkg/registry"
	"github.com/cloudwego/kitex/pkg/remote/trans/nphttp2/grpc"
	"github.com/cloudwego/kitex/pkg/rpcinfo"
	"github.com/cloudwego/kitex/pkg/transmeta"
	"github.com/cloudwego/kitex/server"
	"github.com/cloudwego/kitex/server/genericserver"
	kitex "github.com/cloudwego/kitex/transport"
	etcdregistry "github.com/kitex-contrib/registry-etcd"
)

// serviceName is the key of the servers in Kitex's registry.
const serviceName = "remora.Echo"

// transports are how Kitex frames calls of Thrift. mux is TTHeader with calls side by side on one
// connection.
var transports = map[string]kitex.Protocol{
	"":               kitex.PurePayload,
	"framed":         kitex.Framed,
	"ttheader":       kitex.TTHeader,
	"ttheaderframed": kitex.TTHeaderFramed,
	"mux":            kitex.TTHeader,
}

// serveKitex serves Thrift in all framings and gRPC at one address.
func serveKitex() error {
	listens, err := net.ResolveTCPAddr("tcp", *addr)
	if err != nil {
		return err
	}
	options := []server.Option{
		server.WithServiceAddr(listens),
		server.WithExitWaitTime(5 * time.Second),
		server.WithMetaHandler(transmeta.ServerTTHeaderHandler),
		server.WithServerBasicInfo(&rpcinfo.EndpointBasicInfo{ServiceName: serviceName}),
	}
	if *transport == "mux" {
		options = append(options, server.WithMuxTransport())
	}
	if *age > 0 {
		options = append(options, server.WithGRPCKeepaliveParams(grpc.ServerKeepalive{MaxConnectionAge: *age}))
	}
	if *etcd != "" {
		keeper, err := etcdregistry.NewEtcdRegistry([]string{*etcd}, etcdregistry.WithEtcdServicePrefix(*prefix))
		if err != nil {
			return err
		}
		info := &registry.Info{ServiceName: serviceName, Addr: listens, Weight: 10}
		if *register != "" {
			info.SkipListenAddr = true
			if info.Addr, err = net.ResolveTCPAddr("tcp", *register); err != nil {
				return err
			}
		}
		options = append(options, server.WithRegistry(keeper), server.WithRegistryInfo(info))
	}
	s := server.NewServer(options...)
	idl, err := thriftIDL()
	if err != nil {
		return err
	}
	if err := genericserver.RegisterService(s, thriftService(), idl); err != nil {
		return err
	}
	if err := s.RegisterService(grpcService, &grpcServer{}); err != nil {
		return err
	}
	if err := s.RegisterService(tellerService, &teller{}); err != nil {
		return err
	}
	return s.Run()
}

// clientOptions say where the server is.
func clientOptions() ([]client.Option, error) {
	options := []client.Option{client.WithConnectTimeout(15 * time.Second), client.WithRPCTimeout(time.Minute)}
	if *etcd == "" {
		return append(options, client.WithHostPorts(*addr)), nil
	}
	resolver, err := etcdregistry.NewEtcdResolver([]string{*etcd}, etcdregistry.WithEtcdServicePrefix(*prefix))
	if err != nil {
		return nil, err
	}
	return append(options, client.WithResolver(resolver)), nil
}

// pool keeps connections between calls, as most users of Kitex do.
var pool = connpool.IdleConfig{MaxIdlePerAddress: 10, MaxIdleGlobal: 100, MaxIdleTimeout: time.Minute}
