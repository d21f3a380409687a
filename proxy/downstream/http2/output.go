package http2

import (
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/mux"
	"github.com/remora-proxy/remora/proxy/shard"
)

// output sends the frames of the codec, as far as the client reads them.
//
// Calls in: whoever gives the codec frames calls schedule. Who ends the connection calls last.
//
// Calls out: behind a write, input and calls start their timeouts anew, and the ending may be over.
type output struct {
	*session
	flush    loop.Flush
	outbound shard.Outbound // write timeout
}

func (o *output) init(s *session) {
	o.session = s
	o.outbound.Init(s.host.Shard)
	o.flush.Do = o.write
}

// open gives the output its connection.
func (o *output) open(c loop.Conn) { o.outbound.Conn = c }

// schedule sends what the codec has: at once if alone, with no other request in flight; else with
// the other frames of the turn, at its end.
func (o *output) schedule(alone bool) {
	switch {
	case o.input.busy() || o.ending.over() || !o.codec.Ready():
	case alone:
		o.write()
	default:
		o.later()
	}
}

// later makes write run at the end of the turn.
func (o *output) later() { o.host.Loop.Defer(&o.flush) }

// write writes the frames of the codec, as far as the client reads them.
func (o *output) write() {
	if o.ending.over() {
		return
	}
	for o.codec.Ready() {
		if o.conn.Buffered() > mux.MaxOutbound {
			o.conn.AwaitRoom(mux.MaxOutbound, &o.flush)
			break
		}
		b := o.codec.Output(mux.BatchSize)
		if o.ending.over() {
			return
		}
		if len(b) > 0 {
			o.outbound.Write(b)
		}
	}
	o.memory.recount()
	o.outbound.Watch()
	o.input.startTimeout()
	o.calls.watch()
	o.ending.finish()
}

// last writes what is queued behind a failure.
func (o *output) last() {
	if b := o.codec.Output(mux.BatchSize); len(b) > 0 {
		o.outbound.Write(b)
	}
	o.outbound.Watch()
}

// counted returns the bytes that wait for the client to read, and that are counted.
func (o *output) counted() int { return o.outbound.Counted() }

// stop ends the write timeout.
func (o *output) stop() { o.outbound.Stop() }
