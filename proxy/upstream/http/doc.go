// Package http reaches endpoints by HTTP/1.1.
//
//	connector.go  one loop's maker of pools
//	pool.go       the connections to one endpoint, and the attempts that wait for one
//	conn.go       one connection: one request at a time
//	stream.go     a response that turns out to be a stream
package http
