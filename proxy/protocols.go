package proxy

import (
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/downstream"
	downdubbo "github.com/remora-proxy/remora/proxy/downstream/dubbo"
	downhttp "github.com/remora-proxy/remora/proxy/downstream/http"
	downlink "github.com/remora-proxy/remora/proxy/downstream/link"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/shard"
	updubbo "github.com/remora-proxy/remora/proxy/upstream/dubbo"
	uphttp "github.com/remora-proxy/remora/proxy/upstream/http"
	uplink "github.com/remora-proxy/remora/proxy/upstream/link"
)

// protocol is what the process needs to know of a wire protocol.
type protocolEntry struct {
	name       string
	downstream func(*downstream.Host) downstream.Acceptor                // makes a loop's sessions; nil: no listener of the core speaks it
	upstream   func(w *shard.Shard, p *exchange.Pool) exchange.Connector // makes a loop's upstreams
	streams    exchange.StreamAccess                                     // how a stream reaches an endpoint
	opaque     bool                                                      // its services take streams of bytes, and no requests
	sidecars   bool                                                      // its peers are sidecars
}

// protocols is the list of all protocols.
var protocols = []protocolEntry{
	{name: config.ProtocolHTTP, downstream: downhttp.NewAcceptor, upstream: uphttp.NewConnector},
	{name: config.ProtocolLink, downstream: downlink.NewAcceptor, upstream: uplink.NewConnector, streams: exchange.StreamLink, sidecars: true},
	{name: config.ProtocolDubbo, downstream: downdubbo.NewAcceptor, upstream: updubbo.NewConnector, streams: exchange.StreamNone},
	{name: config.ProtocolTCP, downstream: downhttp.NewAcceptor, upstream: uphttp.NewConnector, opaque: true},
}

// fallbackProtocol is spoken to endpoints whose protocol is not known.
const fallbackProtocol = config.ProtocolHTTP

// protocolOf is the entry of a name, or the zero value.
func protocolOf(name string) protocolEntry {
	for _, p := range protocols {
		if p.name == name {
			return p
		}
	}
	return protocolEntry{}
}
