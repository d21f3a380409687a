package etcd

import (
	"context"
	"crypto/tls"
	"net"

	"google.golang.org/grpc/credentials"
)

// rotating are gRPC credentials that get a new TLS configuration for each handshake. gRPC's
// own credentials keep the first configuration with its authorities. Callbacks of package tls
// could get newer ones, but do not know the dialled address, which a certificate often names.
type rotating struct {
	credentials.TransportCredentials
	current func() *tls.Config
}

func rotate(current func() *tls.Config) credentials.TransportCredentials {
	return rotating{credentials.NewTLS(current()), current}
}

// ClientHandshake implements credentials.TransportCredentials.
func (r rotating) ClientHandshake(ctx context.Context, authority string, c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return credentials.NewTLS(r.current()).ClientHandshake(ctx, authority, c)
}

// Clone implements credentials.TransportCredentials.
func (r rotating) Clone() credentials.TransportCredentials { return rotate(r.current) }
