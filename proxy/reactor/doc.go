// Package reactor drives the proxy core on real sockets: it implements
// loop.Loop and loop.Conn on gnet's epoll loops. It is the only package that
// imports gnet, and the place where gnet's sharp edges are filed off; why gnet,
// and how it is used, is docs/decisions/0001-engine.md.
//
// One file per duty:
//
//	engine.go    starts and stops the loops, counts
//	listener.go  accepts, sheds, spreads connections over the loops
//	dialer.go    connects, in goroutines, and hands the socket to a loop
//	handler.go   gnet's events to ours
//	loop.go      loop.Loop: timers, flushes, dials
//	turn.go      when a turn ends, functions posted from outside
//	clock.go     the timerfd behind a loop's timers
//	conn.go      loop.Conn, its states
//	drain.go     the orderly close
//	tls.go       TLS between the stream and the socket
//	tlsfailure.go  what can go wrong with it: codes, counts, log
//	detach.go    a connection leaves its loop for good
//	cpu.go       how many loops the machine grants
//
// Each socket belongs to one loop from its birth; nothing of a loop is touched
// by another goroutine, except what eventLoop.mu guards and the atomic counters.
package reactor
