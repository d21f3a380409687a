// Package loop is what the core knows of the world: time and connections, as a
// driver hands them out. A driver (proxy/reactor on real sockets, proxy/sim in tests)
// implements Loop; everything above is written against it.
//
//	loop.go     Loop
//	conn.go     a connection, and the events of its Stream
//	socket.go   a connection that has left its loop
//	timer.go    Timer and Flush, embedded in what they serve
//	timers.go   the stores of timers and flushes, for drivers
//	timeout.go  Timeout: one timeout at a time, cheap to set again
//
// It imports nothing of the module.
package loop
