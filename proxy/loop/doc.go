// Package loop defines time and connections for the core. A driver (proxy/reactor on real
// sockets, proxy/sim in tests) implements Loop; the packages above use only the interfaces.
//
//	loop.go     Loop
//	conn.go     Conn, a connection, and Receiver, which receives its events; optional.go what only some of them can do
//	timer.go    Timer and Flush, embedded in their owners
//	timeout.go  Timeout, the one timeout of a session
//	socket.go   Socket, a connection that has left its loop
//	pipe.go     Pipe, a Socket that never had a connection
//	source.go   which connections share a source
//	state.go    IllegalState, the panic of a state machine
//	timers.go   Timers and Flushes, the queues of a driver
//
// It imports no other package of the module.
package loop
