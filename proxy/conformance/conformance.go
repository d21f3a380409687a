// Package conformance is the suite of tests for both drivers of loop.Loop: proxy/reactor on
// real sockets and proxy/sim on virtual time. The results of the simulator hold for the
// real driver only if both behave alike. So every rule of package loop that the core needs
// has a case here.
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

	// Outside runs each of fs outside of loops: concurrently, on goroutines of
	// their own (real), or one after another between two turns (simulated). It
	// returns when all have returned. They may use only l.Post.
	Outside(fs ...func(l loop.Loop))

	// Wait returns when cond, evaluated on the loop, holds. It fails the test
	// after a generous deadline.
	Wait(what string, cond func() bool)

	// Listen accepts connections on the loop under test, each with the Receiver
	// that accept returns (called on the loop), and gives the address to dial.
	Listen(accept func() loop.Receiver) (addr string)

	// Refused returns an address without a listener.
	Refused() (addr string)

	// Blackhole returns an address at which dials time out. ok is false if the
	// driver has none; its case is skipped then.
	Blackhole() (addr string, ok bool)

	// Connect opens a connection to addr from outside of the loop under test
	// and returns once it is established. Real drivers return NetPeer.
	Connect(addr string) Peer
}

// Peer is the far end of a connection, outside of the loop under test, with the
// freedoms that a Receiver does not have: not to read, to shut one direction, to
// reset. Its methods do not block.
type Peer interface {
	// Send sends all of b in the background, after earlier bytes. It takes
	// ownership of b.
	Send(b []byte)

	// Read begins to read, until the end of file or an error. Until then
	// nothing is read, so that what the other side sends fills the kernel's
	// buffers and then its own.
	Read()

	// Got returns the bytes read so far. err is nil while more may arrive, io.EOF
	// after an orderly end, else the error of the connection. The slice is valid
	// until the next call.
	Got() (b []byte, err error)

	// CloseWrite shuts the sending direction after the bytes sent.
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

// cases are all cases, in the order of package loop.
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
	{"ReadToRoom", readToRoom},
	{"WriteParts", writeParts},
	{"WriteEmpty", writeEmpty},
	{"EchoBig", echoBig},
	{"Buffered", buffered},
	{"AwaitRoom", awaitRoom},
	{"WriteAfterEnd", writeAfterEnd},
	{"WriteAfterCloseReachesNobody", writeAfterCloseReachesNobody},

	{"CloseAnywhere", closeAnywhere},
	{"CloseEachOther", closeEachOther},
	{"CloseTwice", closeTwice},
	{"CloseDropsBuffered", closeDropsBuffered},
	{"PeerCloses", peerCloses},
	{"PeerHalfCloses", peerHalfCloses},
	{"PeerHalfClosesAndReads", peerHalfClosesAndReads},
	{"PeerHalfClosesAndResets", peerHalfClosesAndResets},
	{"PeerResets", peerResets},
	{"PeerResetsWhileWritten", peerResetsWhileWritten},

	{"DrainDelivers", drainDelivers},
	{"DrainEndsAlone", drainEndsAlone},
	{"DrainReadsAndDrops", drainReadsAndDrops},
	{"DrainThenClose", drainThenClose},
	{"FinishDelivers", finishDelivers},
	{"FinishReadsAndDrops", finishReadsAndDrops},

	{"DetachHandsOver", detachHandsOver},
	{"DetachRefused", detachRefused},
	{"DetachAfterEnd", detachAfterEnd},

	{"SetReceiver", setReceiver},
}

// Names returns the names of all cases, as Run uses them for its subtests.
func Names() []string {
	names := make([]string, len(cases))
	for i, c := range cases {
		names[i] = c.name
	}
	return names
}
