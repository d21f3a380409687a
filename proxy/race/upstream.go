package race

import "github.com/remora-proxy/remora/proxy/service"

// Upstream reaches one endpoint from one loop. Each attempt ends with exactly one of Respond,
// RespondLocally, Fail and Finish, unless its carrier's Cancel or Abort ended it.
type Upstream interface {
	service.Connections
	// Send ends a, or gives it to a Carrier, before it returns.
	Send(a *Attempt)
}

// ConnectBy makes a Connector for endpoints that take attempts.
func ConnectBy(connect func(s *service.Service, e *service.Endpoint) Upstream) service.Connector {
	return func(s *service.Service, e *service.Endpoint) service.Connections { return &connected{connect(s, e)} }
}

// connected is an Upstream as the Connections of a service.Endpoint.
type connected struct{ Upstream }

// upstreamOf returns the Upstream of an endpoint that ConnectBy has connected.
func upstreamOf(e *service.Endpoint) Upstream { return e.Upstream.(*connected).Upstream }

// Carrier is whoever has an attempt that was sent: a connection, or the queue for one.
type Carrier interface {
	// Cancel withdraws a. The memory of its request is invalid afterwards. Cancel
	// reports whether the endpoint may still work on it.
	Cancel(a *Attempt) (lingers bool)
	// Abort forgets a at once.
	Abort(a *Attempt)
	// Buffered is the number of bytes held for a, besides its request.
	Buffered(a *Attempt) int
}
