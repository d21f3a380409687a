package http2

import (
	"cmp"

	"github.com/remora-proxy/remora/protocol"
)

// Options of a Conn. They are shared by connections and never changed.
type Options struct {
	// Buffers gives memory for frames that arrive in parts and for data that waits.
	Buffers *protocol.Buffers

	Limits  protocol.Limits // Header and Headers of a head; Header is announced. Message is not used
	Streams int             // server: announced MAX_CONCURRENT_STREAMS; more are refused. 0 means 100
	Window  int             // announced receive window of a stream, in bytes; 0 means 64 KiB
	Floods  Floods
}

const (
	maxFrame      = 16 << 10  // bytes of payload that we accept and send
	maxWindow     = 1<<31 - 1 // of flow control (RFC 9113 section 6.9.1)
	defaultWindow = 1<<16 - 1 // before SETTINGS
	maxID         = 1<<31 - 1 // stream identifiers

	defaultStreams = 100     // streams at a time: ours, and the peer's before its SETTINGS
	leastConnWin   = 1 << 20 // the connection's receive window, at least
	connWindows    = 4       // the same, in windows of a stream

	blockExtra   = 4 << 10   // bytes of a header block in parts over twice Limits.Header
	fieldFraming = 4         // bytes of a field line of HTTP/1.1 beside its name and value
	doubledHead  = 8 << 10   // memory of a head up to which it doubles as it grows
	keepFields   = 32        // memory for trailers that stays for reuse, in fields
	freeInterim  = 32        // interim responses to a request that do not count as Floods.Others
	usefulBytes  = 512       // bytes of DATA that pay for one of Floods.Others
	controlBound = 64 << 10  // bytes of control frames that wait for Output
	maxBarriers  = 64        // SETTINGS that the peer has not acknowledged
	directOutput = 64 << 10  // bytes that wait for Output; above, bodies wait with their streams
	smallBody    = 4 << 10   // bodies up to this size need not wait behind others
	sendBound    = 64 << 10  // bytes that Send holds for a stream
	keepOutput   = 256 << 10 // memory for output that stays for reuse
	maxFree      = 64        // streams that stay for reuse
	batchFrames  = 8         // one frame in this number is of a batch message while others wait
	resetMemory  = 256       // streams that we have reset and remember
	endedMemory  = 32        // streams that have ended otherwise and that we remember
)

// connWindow returns the receive window of a connection.
func (o *Options) connWindow() int { return min(max(leastConnWin, connWindows*o.window()), maxWindow) }

func (o *Options) window() int { return min(cmp.Or(o.Window, 1<<16), maxWindow) }

func (o *Options) streams() int { return cmp.Or(o.Streams, defaultStreams) }
