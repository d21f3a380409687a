// Package reactor runs the proxy core on real sockets. It implements loop.Loop and loop.Conn
// on gnet's loops, and works around gnet's defects. It is the only package that imports
// gnet; docs/decisions/0001-engine.md says why gnet, and how it is used.
//
// The files:
//
//	engine.go    starts and stops the loops, counts
//	listener.go  accepts or refuses connections, spreads them over the loops
//	reserve.go   limits of accepted connections: in all, per listener, per source
//	transparent.go  redirected connections: HTTP/1 or passed on
//	dialer.go    connects, on goroutines, and gives the socket to a loop
//	handler.go   receives gnet's events
//	loop.go      loop.Loop: timers, flushes, dials
//	turn.go      when a turn ends, and functions posted from outside
//	idlewait_linux.go  how a loop with little to do waits for its next event
//	clock.go     the timer of the system behind a loop's timers
//	conn.go      loop.Conn and its states, writes to the socket
//	drain.go     the orderly close
//	newcomer.go  accepted connections before their TLS handshake
//	tls.go       TLS between the stream and the socket
//	trust.go     peers that are no longer accepted
//	tlsfailure.go  codes, counts and log of TLS failures
//	socket.go    loop.Socket: connections on no loop
//	detach.go    a connection leaves its loop and becomes a Socket
//	cpu.go       the number of loops for the CPU quota
//	kernel/      system calls that differ between operating systems
//
// Each socket belongs to one loop. Other goroutines access only the fields of a loop
// that eventLoop.mu guards, and atomic counters.
package reactor
