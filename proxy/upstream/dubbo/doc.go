// Package dubbo reaches Dubbo providers.
//
//	upstream.go  one endpoint on one loop: one connection, dialled on first use
//	conn.go      the connection: calls, heartbeats, the provider's events
//	state.go     the states of the connection
//	calls.go     the table of the calls in flight
//	message.go   attempts to frames, and frames to responses, those to HTTP requests too
package dubbo
