// Package stream carries what is no message: connections whose bytes nobody
// waits to be complete. They run on goroutines and the standard library, two to
// a stream, because blocking reads and writes bring backpressure from end to end
// and half-close for free, and the reactor's engine has neither.
//
// One file per duty:
//
//	server.go    what all streams share, and how they are ended
//	listener.go  tcp listeners: accepts, counts, refuses
//	tunnel.go    one stream: its endpoint, its connection there, its account
//	upgrade.go   a WebSocket's handshake, on a connection that left the reactor
//	relay.go     the bytes, both ways
//	idle.go      ends what has stopped moving
//
// The core picks endpoints and keeps the accounts (proxy.Lease).
package stream
