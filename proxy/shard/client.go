package shard

import (
	"net/netip"

	"github.com/remora-proxy/remora/proxy/fair/share"
	"github.com/remora-proxy/remora/proxy/loop"
)

// Client is who a request or stream came from.
type Client struct {
	Listener string     // its name; empty if it is unknown
	Addr     string     // "ip:port" of the peer
	Behind   netip.Addr // the loop.Source of the client whom the peer, a sidecar, serves; the zero Addr if it is unknown
	GRPC     bool       // it made a gRPC call
	Session  Session
}

// Source returns whose share the client's places count for.
func (c *Client) Source() share.Source {
	return share.Source{Peer: loop.Source(loop.PeerAddr(c.Addr)), Client: c.Behind}
}

// Session is what is known of the session of a stream.
type Session struct {
	Key    uint64 // for a policy by key; 0 means none
	Pin    string // the value of the sticky cookie; empty means none
	Cookie []byte // Set-Cookie of the session that the stream begins; empty means none
	Secure bool   // the client uses TLS
}
