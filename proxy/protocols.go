package proxy

import "github.com/remora-proxy/remora/proxy/config"

// protocol is what the process needs to know of a wire protocol.
type protocolEntry struct {
	name       string
	downstream func(*host) acceptor              // makes a loop's sessions; nil: no listener of the core speaks it
	upstream   func(w *shard, p *pool) connector // makes a loop's upstreams
	streams    streamAccess                      // how a stream reaches an endpoint
	opaque     bool                              // its services take streams of bytes, and no requests
	sidecars   bool                              // its peers are sidecars
}

// protocols is the list of all protocols.
var protocols = []protocolEntry{
	{name: config.ProtocolHTTP, downstream: newHTTPAcceptor, upstream: newHTTPConnector},
	{name: config.ProtocolLink, downstream: newLinkAcceptor, upstream: newLinkConnector, streams: streamLink, sidecars: true},
	{name: config.ProtocolDubbo, downstream: newDubboAcceptor, upstream: newDubboConnector, streams: streamNone},
	{name: config.ProtocolTCP, downstream: newHTTPAcceptor, upstream: newHTTPConnector, opaque: true},
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
