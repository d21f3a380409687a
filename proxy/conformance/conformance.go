// Package conformance is the one suite of tests that both drivers of loop.Loop
// pass, proxy/reactor on real sockets and proxy/sim on virtual time. What the
// simulator proves about the core holds for the real thing only as far as the
// two agree, and this is where they are made to agree: every sentence of
// proxy/loop.go that the core leans on has a case here.
package conformance

import (
	"testing"

	"github.com/remora-proxy/remora/proxy/loop"
)

// Harness drives one loop of one driver. Its methods are called from the test's
// goroutine only, never from a callback. It cleans up through t.Cleanup.
type Harness interface {
	// Do runs f on the loop and returns after it ran. A real driver posts it
	// and waits; the simulator steps virtual time until it has run.
	Do(f func(l loop.Loop))

	// Outside runs each of fs where no loop is: on goroutines of their own, at
	// the same time (real), or one after another between two turns (simulated).
	// It returns when all have returned. l is there for its Post alone.
	Outside(fs ...func(l loop.Loop))

	// Wait returns when cond, evaluated on the loop, holds. It fails the test
	// after a generous deadline.
	Wait(what string, cond func() bool)

	// Listen accepts connections on the loop under test, each with the Stream
	// that accept returns (called on the loop), and gives the address to dial.
	Listen(accept func() loop.Stream) (addr string)

	// Refused is an address where nobody listens.
	Refused() (addr string)

	// Blackhole is an address that never answers a dial; ok is false where the
	// driver has no such thing, and the case is skipped.
	Blackhole() (addr string, ok bool)

	// Connect opens a connection to addr from outside of the loop under test
	// and returns once it is established. Real drivers return NetPeer.
	Connect(addr string) Peer
}

// Peer is the far end of a connection, outside of the loop under test, with the
// freedoms that a Stream does not have: not to read, to shut one direction, to
// reset. Its methods do not block.
type Peer interface {
	// Send sends all of b in the background, after what was sent before. It
	// takes b over.
	Send(b []byte)

	// Read begins to read, until the end of file or an error. Until then
	// nothing is read, so that what the other side sends fills the kernel's
	// buffers and then its own.
	Read()

	// Got is what was read so far. err is nil while more may come, io.EOF
	// after an orderly end, else what broke the connection. The slice is valid
	// until the next call.
	Got() (b []byte, err error)

	// CloseWrite shuts the sending direction after what was sent.
	CloseWrite()

	// Reset closes the connection with a reset.
	Reset()
}

// Run runs every case of the suite, each as a subtest on a new harness.
func Run(t *testing.T, newHarness func(t *testing.T) Harness) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			c.run(&suite{Harness: newHarness(t), t: t})
		})
	}
}

// cases is all that a driver is held to, in the order of proxy/loop.go.
var cases = []struct {
	name string
	run  func(s *suite)
}{
	{"NowStandsStill", nowStandsStill},
	{"NowIsMonotonic", nowIsMonotonic},

	{"TimersInOrder", timersInOrder},
	{"TimersNotEarly", timersNotEarly},
	{"TimerZeroNotWithinCall", timerZeroNotWithinCall},
	{"TimerZeroStarvesNothing", timerZeroStarvesNothing},
	{"TimerMoved", timerMoved},
	{"TimerStoppedByAnother", timerStoppedByAnother},
	{"TimerMovedByAnother", timerMovedByAnother},
	{"TimerRearmsItself", timerRearmsItself},
	{"TimerArmed", timerArmed},
	{"TimersMany", timersMany},

	{"DeferOnce", deferOnce},
	{"DeferAtEndOfTurn", deferAtEndOfTurn},
	{"DeferInOrder", deferInOrder},
	{"DeferAgainStarvesNothing", deferAgainStarvesNothing},
	{"DeferFromAnywhere", deferFromAnywhere},
	{"DeferBeforeCloseNotice", deferBeforeCloseNotice},

	{"PostFromOutside", postFromOutside},
	{"PostNotWithinCall", postNotWithinCall},

	{"DialOpens", dialOpens},
	{"DialRefused", dialRefused},
	{"DialTimeout", dialTimeout},
	{"DialBadAddress", dialBadAddress},
	{"DialMany", dialMany},

	{"OpenDataClose", openDataClose},
	{"WriteInOpen", writeInOpen},
	{"WritesInOrder", writesInOrder},
	{"WriteTakesCopy", writeTakesCopy},
	{"WriteEmpty", writeEmpty},
	{"EchoBig", echoBig},
	{"Buffered", buffered},
	{"WriteAfterEnd", writeAfterEnd},
	{"WriteAfterCloseReachesNobody", writeAfterCloseReachesNobody},

	{"CloseAnywhere", closeAnywhere},
	{"CloseEachOther", closeEachOther},
	{"CloseTwice", closeTwice},
	{"CloseDropsBuffered", closeDropsBuffered},
	{"PeerCloses", peerCloses},
	{"PeerHalfCloses", peerHalfCloses},
	{"PeerResets", peerResets},
	{"PeerResetsWhileWritten", peerResetsWhileWritten},

	{"DrainDelivers", drainDelivers},
	{"DrainEndsAlone", drainEndsAlone},
	{"DrainReadsAndDrops", drainReadsAndDrops},
	{"DrainThenClose", drainThenClose},

	{"DetachHandsOver", detachHandsOver},
	{"DetachRefused", detachRefused},
	{"DetachAfterEnd", detachAfterEnd},
}

// Names are the names of all cases, as Run uses them for its subtests.
func Names() []string {
	names := make([]string, len(cases))
	for i, c := range cases {
		names[i] = c.name
	}
	return names
}
