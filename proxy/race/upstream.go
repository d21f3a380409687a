package race

import (
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/service"
	"github.com/remora-proxy/remora/proxy/shard"
)

// Upstream reaches one endpoint from one loop. Each attempt ends with exactly one of Respond,
// RespondLocally, Fail, Finish and Presume, unless its carrier's Cancel or Abort ended it.
type Upstream interface {
	service.Connections
	// Send ends a, or gives it to a Carrier, before it returns.
	Send(a *Attempt)
}

// StreamOpener is an Upstream whose connections carry streams beside requests. The HTTP/2 upstream is one. Each
// endpoint with service.StreamPipe must have one: else a stream to it panics.
type StreamOpener interface {
	// OpenStream returns a pipe for the HTTP/1.1 text of one request and its response. The pipe
	// opens once a connection takes the stream, and fails if none will. A pipe may fail
	// later with an error of the stream, too. OpenStream is called on the loop of the connections.
	// from is who the request came from.
	OpenStream(from shard.Client) loop.Socket
}

// ConnectBy makes a Connector for endpoints that take attempts.
func ConnectBy(connect func(s *service.Service, e *service.Endpoint) Upstream) service.Connector {
	return func(s *service.Service, e *service.Endpoint) service.Connections { return &connected{connect(s, e)} }
}

// connected is an Upstream as the Connections of a service.Endpoint.
type connected struct{ Upstream }

// Probe implements service.Prober.
func (c *connected) Probe() bool {
	p, ok := c.Upstream.(service.Prober)
	return ok && p.Probe()
}

// upstreamOf returns the Upstream of an endpoint that ConnectBy has connected.
func upstreamOf(e *service.Endpoint) Upstream { return e.Upstream().(*connected).Upstream }

// Carrier is whoever has an attempt that was sent: a connection, or the queue for one. It may read the request, and
// keep slices of it, until it calls Respond, RespondLocally, Fail, Finish or Presume, or returns from Cancel or Abort.
type Carrier interface {
	// Cancel withdraws a, and reports whether the endpoint may still work on it.
	Cancel(a *Attempt) (lingers bool)
	// Abort forgets a at once.
	Abort(a *Attempt)
	// Buffered is the number of bytes held for a, besides its request.
	Buffered(a *Attempt) int
}

// Renewer is a Carrier whose connection carries other attempts, too.
type Renewer interface {
	// Renew has later attempts take another connection. It is called for an attempt whose time is up, if the endpoint has
	// been silent: the connection may be lost without a notice, or TCP may try again too late.
	Renew()
}
