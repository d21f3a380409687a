package service

import "github.com/remora-proxy/remora/proxy/shard"

// Connections are those to one endpoint from one loop.
type Connections interface {
	// Retire is called when the endpoint has left the service: connections close once idle.
	Retire()
	// Connections counts open connections and dials in progress.
	Connections() int
	// Largest returns the connection that holds the most memory, the bytes that it
	// holds, and the bytes for each of its requests. h is nil if connections carry one
	// request each: then the request's own connection is charged.
	Largest() (held, each int, h shard.Holder)
}

// Connector makes the connections to an endpoint of s, for one protocol on the loop of s. Package race
// sends attempts to what it returns.
type Connector func(s *Service, e *Endpoint) Connections

// Protocol is how one loop connects to endpoints of a protocol.
type Protocol struct {
	Connector
	Streams StreamAccess
	Opaque  bool // services of the protocol accept streams of bytes, and no requests
	Resets  bool // a cancelled attempt ends early: nobody learns how long the endpoint would have taken
}

// Protocols are those of one loop, by protocol name; the empty name is for unknown protocols.
type Protocols map[string]Protocol

// StreamAccess is how a stream reaches an endpoint.
type StreamAccess uint8

const (
	StreamPlain StreamAccess = iota // by a plain connection
	StreamLink                      // by a connection to a sidecar's link port, after the preface of a stream
	StreamNone                      // not at all
	StreamPipe                      // by a pipe of who takes the endpoint's requests: race.StreamOpener
)
