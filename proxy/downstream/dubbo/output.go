package dubbo

import (
	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/mux"
	"github.com/remora-proxy/remora/proxy/shard"
)

// output writes the frames of a turn in one write.
//
// Calls in: who has a short frame appends it to buffer, and who has a long one calls writeLong. Who ends the connection
// calls write.
//
// Calls out: behind the write of a turn, the ending may be over.
type output struct {
	*session
	frames   *bytebufferpool.ByteBuffer // not written yet; may be nil
	flush    loop.Flush
	outbound shard.Outbound // write timeout
}

func (o *output) init(s *session) {
	o.session = s
	o.outbound.Init(s.host.Shard)
	o.flush.Do = o.onTurnEnd
}

// open gives the output its connection.
func (o *output) open(c loop.Conn) { o.outbound.Conn = c }

// buffer returns the buffer of frames that are written at the end of the turn.
func (o *output) buffer() *bytebufferpool.ByteBuffer {
	if o.frames != nil && len(o.frames.B) > mux.BatchSize {
		o.write()
	}
	if o.frames == nil {
		o.frames = o.host.Buffers.Get(0)
		o.host.Loop.Defer(&o.flush)
	}
	return o.frames
}

// writeLong writes the buffered frames and a body behind them. A copy of the body would be memory that
// limits.buffered does not count.
func (o *output) writeLong(body []byte) {
	o.outbound.WriteBoth(o.frames.B, body)
	o.onWritten()
}

// onTurnEnd writes the responses of the turn, and closes a draining connection after the last one.
func (o *output) onTurnEnd() {
	o.write()
	o.ending.finish()
}

// write writes the buffered frames.
func (o *output) write() {
	if o.frames == nil {
		return
	}
	o.outbound.Write(o.frames.B)
	o.onWritten()
}

// onWritten releases the buffer of frames, which are written.
func (o *output) onWritten() {
	o.drop()
	o.outbound.Watch()
}

// drop drops the buffered frames.
func (o *output) drop() { o.host.Buffers.Release(&o.frames) }

// counted returns the bytes that wait for the consumer to read, and that are counted.
func (o *output) counted() int { return o.outbound.Counted() }

// stop ends the write timeout.
func (o *output) stop() { o.outbound.Stop() }
