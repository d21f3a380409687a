package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"net"

	"google.golang.org/grpc/credentials"
)

// rotating are gRPC credentials that ask for the TLS configuration at each
// handshake. Those of gRPC keep the one they were made with, and with it its
// authorities; and callbacks of package tls that could look up newer ones aren't
// told the address that was dialled, which is what an etcd certificate often
// names.
type rotating struct {
	current func() *tls.Config
}

// ClientHandshake implements credentials.TransportCredentials.
func (r *rotating) ClientHandshake(ctx context.Context, authority string, c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return credentials.NewTLS(r.current()).ClientHandshake(ctx, authority, c)
}

// ServerHandshake implements credentials.TransportCredentials.
func (r *rotating) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("registry/etcd: a client only")
}

// Info implements credentials.TransportCredentials.
func (r *rotating) Info() credentials.ProtocolInfo { return credentials.NewTLS(r.current()).Info() }

// Clone implements credentials.TransportCredentials.
func (r *rotating) Clone() credentials.TransportCredentials { return &rotating{r.current} }

// OverrideServerName implements credentials.TransportCredentials. gRPC asks for
// it in tests of its own only.
func (r *rotating) OverrideServerName(string) error {
	return errors.New("registry/etcd: the server's name is that of the endpoint")
}
