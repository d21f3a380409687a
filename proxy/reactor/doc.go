// Package reactor runs the proxy core on real sockets: it implements loop.Loop and loop.Conn.
// docs/decisions/0001-engine.md says how, and why.
//
// The files:
//
//	reactor.go       the Reactor: starts and stops the loops, counts
//	loop.go          a loop: its data, timers and flushes
//	turn.go          the turns of a loop, and functions posted from outside
//	descriptor.go    a socket on a loop: writes
//	output.go        output that the kernel has not taken
//	conn.go          loop.Conn: its states, and what ends it
//	input.go         what a connection reads
//	drain.go         the orderly close
//	listener.go      listening sockets; bind.go opens them
//	accept.go        accepts or refuses connections, spreads them over the loops
//	use.go           how much of its time a loop is busy
//	move.go          moves connections between loops, so that no more than needed carry requests
//	connections.go   counts and limits of connections: in all, per listener, per source
//	transparent.go   redirected connections: HTTP/1 or passed on
//	dial.go          connects, on the loop or by the dialer
//	dialer.go        connects on goroutines, for the loops
//	socketdialer.go  connects Sockets
//	newcomer.go      accepted connections until the end of their TLS handshake
//	flights.go       carries a handshake between its loop and its goroutine
//	tls.go           TLS between the receiver and the socket
//	trust.go         peers that are no longer accepted
//	computing.go     how many handshakes compute at a time
//	handshakes.go    places for the handshakes of accepted connections
//	tlsoutcomes.go   codes, counts and log of how TLS went
//	socket.go        loop.Socket: connections on no loop
//	detach.go        a connection leaves its loop and becomes a Socket
//	backlogtest/     waits, in tests, for connections that nobody has accepted
//	engine/          lists the engines, which wait for sockets
//	epoll/           waits by epoll
//	gnet/            waits by the poller of gnet
//	kernel/          system calls that differ between operating systems, and the interface of an engine
//
// Each socket belongs to one loop. Other goroutines access only the posted functions of a loop,
// and atomic counters.
package reactor
