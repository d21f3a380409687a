// Package httpstream translates between a stream of a multiplexed connection, such as HTTP/2's, and
// the HTTP/1.1 text that a goroutine reads and writes at the other end of a loop.Pipe.
//
//	writer.go  Writer: a message of the peer, delivered to the goroutine as text
//	reader.go  Reader: the text of the goroutine, as a head, pieces of the body, and trailers
//
// Bodies are neither copied nor kept here. It knows no frames: the sessions and upstreams of a
// protocol stand between it and their codec.
package httpstream
