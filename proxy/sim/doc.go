// Package sim is the simulated driver of loop.Loop: a whole mesh of sidecars,
// clients and applications in one goroutine, on virtual time, with faults drawn
// from a seed. The same seed gives the same run to the last event (World.Hash), so that a
// failure can be replayed.
//
// A World has loops, each on a host, the network between them (World.Net), and faults
// (World.Faults). It models the kernel below a Receiver: bounded send buffers, receive
// windows, segments with latency, jitter and bandwidth, ends of file, and resets that destroy
// unread input. Byte streams are cut at random places, down to single bytes.
//
// It is stricter than the real driver: OnData's slice is overwritten when the callback
// returns, and a method called outside of the loop's callbacks panics, as does a callback
// inside another one.
//
//	w := sim.New(seed)
//	w.OnFailure(t) // prints the seed and the last events if the test fails
//	a, b := w.Loop("a"), w.Loop("b")
//	w.Net.Listen("10.0.0.2:80", b, func() loop.Receiver { return &server{} })
//	a.Do(func() { a.Dial("10.0.0.2:80", time.Second, &client{}) })
//	w.At(50*time.Millisecond, func() { w.Faults.Pause(b, 30*time.Millisecond) })
//	w.Run(time.Second)
//
//	world.go   World: builds a simulation and runs it
//	clock.go   virtual time and random numbers; queue.go the events that are due
//	loop.go    a loop; conn.go a connection, as its receiver sees it
//	kernel.go  the kernel's end of a connection: buffers, segments, ends of file
//	net.go     Network: hosts, the paths between them, dials and listeners
//	fault.go   Faults: pauses, crashes, partitions
//	detach.go  a connection leaves its loop
//	buffer.go  what OnData gets
//	trace.go   the events of a run, and their hash
package sim
