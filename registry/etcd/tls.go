package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"net"

	"google.golang.org/grpc/credentials"
)

// rotating are gRPC credentials that get a new TLS configuration for each handshake.
// gRPC's own credentials keep the first configuration with its authorities. Callbacks
// of package tls could get newer ones, but do not know the dialled address, which an
// etcd certificate often names.
type rotating struct {
	current func() *tls.Config
}

// ClientHandshake implements credentials.TransportCredentials.
func (r *rotating) ClientHandshake(ctx context.Context, authority string, c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return credentials.NewTLS(r.current()).ClientHandshake(ctx, authority, c)
}

// ServerHandshake implements credentials.TransportCredentials.
func (r *rotating) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("registry/etcd: credentials are for clients only")
}

// Info implements credentials.TransportCredentials.
func (r *rotating) Info() credentials.ProtocolInfo { return credentials.NewTLS(r.current()).Info() }

// Clone implements credentials.TransportCredentials.
func (r *rotating) Clone() credentials.TransportCredentials { return &rotating{r.current} }

// OverrideServerName implements credentials.TransportCredentials. gRPC calls it only in
// its own tests.
func (r *rotating) OverrideServerName(string) error {
	return errors.New("registry/etcd: the server's name can't be overridden")
}
