// Package sim is the simulated driver of loop.Loop: a whole mesh of sidecars,
// clients and applications in one goroutine, on virtual time, with faults drawn
// from a seed. The same seed gives the same run to the last event (World.Hash),
// so that a failure found once can be replayed until it is understood.
//
// A World holds loops, each on a host, and the network between them. Below a
// Stream lies a model of the kernel: a send buffer that takes only so much, a
// receive window, segments that travel with latency, jitter and bandwidth, ends
// of file, and resets that destroy what is unread. Byte streams are cut at
// random places on the way, down to single bytes.
//
// It is strict where the real driver cannot be: OnData's slice is overwritten
// when the callback returns, a method called outside of the loop's callbacks
// panics, and so does a callback inside another one.
//
//	w := sim.New(seed)
//	w.OnFailure(t) // seed and last events, should the test fail
//	a, b := w.Loop("a"), w.Loop("b")
//	w.Listen("10.0.0.2:80", b, func() loop.Stream { return &server{} })
//	a.Do(func() { a.Dial("10.0.0.2:80", time.Second, &client{}) })
//	w.At(50*time.Millisecond, func() { w.Pause(b, 30*time.Millisecond) })
//	w.Run(time.Second)
package sim
