package proxy

import (
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/downstream"
	downdubbo "github.com/remora-proxy/remora/proxy/downstream/dubbo"
	downhttp "github.com/remora-proxy/remora/proxy/downstream/http"
	downhttp2 "github.com/remora-proxy/remora/proxy/downstream/http2"
	downlink "github.com/remora-proxy/remora/proxy/downstream/link"
	"github.com/remora-proxy/remora/proxy/service"
	updubbo "github.com/remora-proxy/remora/proxy/upstream/dubbo"
	uphttp "github.com/remora-proxy/remora/proxy/upstream/http"
	uphttp2 "github.com/remora-proxy/remora/proxy/upstream/http2"
	uplink "github.com/remora-proxy/remora/proxy/upstream/link"
)

// protocolEntry is a line of the list of protocols: all that the process knows of one.
type protocolEntry struct {
	name string // value of protocol in the configuration; listed in config.Protocols

	// newAcceptor returns the part of a loop that makes the sessions of listeners, from
	// proxy/downstream. It is called once for each loop, before any traffic.
	newAcceptor func(*downstream.Host) downstream.Acceptor

	// newConnector returns the part of a loop that makes the upstreams of endpoints,
	// from proxy/upstream. It is called once for each loop, before any traffic.
	newConnector func() service.Connector

	streams service.StreamAccess // how a stream reaches an endpoint; 0 is a plain connection
	opaque  bool                 // its services take streams of bytes, and no requests
	resets  bool                 // see service.Protocol

	// sidecars reports whether the peers of its listeners are sidecars. Such a listener
	// closes last when the process drains. Its peers decide which requests are traced.
	sidecars bool

	http bool // any HTTP/1.1 client can use its listeners
	// plaintext returns the response to a client that must use TLS; nil means that there is none.
	plaintext func() []byte
}

// protocols is the list of all protocols. A new protocol is one folder in proxy/downstream,
// one in proxy/upstream, and one line here. Errors name protocols in this order.
//
// The acceptor of tcp makes no sessions: package sidecar gives the connections of tcp
// listeners to proxy/stream. Those of http2 and grpc have no listeners.
var protocols = []protocolEntry{
	{name: config.ProtocolLink, newAcceptor: downlink.NewAcceptor, newConnector: uplink.NewConnector, streams: service.StreamLink, sidecars: true},
	{name: config.ProtocolHTTP, newAcceptor: newHTTPAcceptor, newConnector: uphttp.NewConnector, http: true, plaintext: downhttp.PlaintextResponse},
	{name: config.ProtocolHTTP2, newAcceptor: downhttp.NewAcceptor, newConnector: uphttp2.NewConnector, streams: service.StreamPipe, resets: true},
	{name: config.ProtocolGRPC, newAcceptor: downhttp.NewAcceptor, newConnector: uphttp2.NewConnector, streams: service.StreamPipe, resets: true},
	{name: config.ProtocolDubbo, newAcceptor: downdubbo.NewAcceptor, newConnector: updubbo.NewConnector, streams: service.StreamNone},
	{name: config.ProtocolTCP, newAcceptor: downhttp.NewAcceptor, newConnector: uphttp.NewConnector, opaque: true},
}

// newHTTPAcceptor returns the Acceptor of HTTP/1.1 connections, and of those that turn out to be HTTP/2.
func newHTTPAcceptor(h *downstream.Host) downstream.Acceptor {
	h.HTTP2 = downhttp2.NewAcceptor(h)
	return downhttp.NewAcceptor(h)
}

// fallbackProtocol is the protocol of endpoints whose protocol is unknown.
const fallbackProtocol = config.ProtocolHTTP

// Protocols returns the names of all protocols.
func Protocols() []string {
	names := make([]string, len(protocols))
	for i := range protocols {
		names[i] = protocols[i].name
	}
	return names
}

// TakesHTTP reports whether any HTTP/1.1 client can use listeners of a protocol.
func TakesHTTP(protocol string) bool { return protocolOf(protocol).http }

func protocolOf(name string) protocolEntry {
	for _, p := range protocols {
		if p.name == name {
			return p
		}
	}
	return protocolEntry{}
}
