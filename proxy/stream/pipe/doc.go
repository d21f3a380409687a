// Package pipe implements loop.Pipe: a stream that shares its connection with others gets a Socket
// for its goroutine, and the loop of the connection the other end.
//
//	pipe.go      New, and the loop's end
//	socket.go    Socket, the goroutine's end
//	queue.go     the bytes of one direction
//	deadline.go  deadlines that may be set during a call
//
// No method of the loop's end waits for the goroutine: locks are held for a few assignments only,
// never while bytes are copied.
package pipe
