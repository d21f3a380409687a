// Package http2 reaches endpoints by HTTP/2.
//
//	pool.go       the connections to one endpoint, and the attempts that wait for one
//	dial.go       when another connection is dialled, and what follows if that fails
//	conn.go       one connection: its life, its output
//	handshake.go  a connection before the endpoint's SETTINGS, and why it may never open
//	keepalive.go  whether the endpoint still answers
//	events.go     what the codec reports
//	call.go       one request: how it is sent, and how it ends
//	withdrawn.go  requests that were reset, until the endpoint knows
//	message.go    the response, as long as it may be a message
//	flow.go       a stream: its bytes go by a pipe, and not to the exchange
//	tunnel.go     a stream whose request comes by a pipe
//	holder.go     dropping the response that holds the most memory
//	state.go      the states of a connection
package http2
