package dubbo

import (
	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/dubbo"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/mux"
)

// flush writes the calls that have not left, together.
func (c *client) flush() {
	if !c.state.sends() {
		return
	}
	c.flushing = true
	out, next := c.shard.Scratch[:0], 0
	for next < len(c.queue) {
		if c.conn.Buffered() > mux.MaxOutbound {
			c.shard.Loop.After(mux.RetryWrite, &c.retryWrite)
			break
		}
		for next < len(c.queue) && len(out) < mux.BatchSize {
			out = c.appendCall(out, c.queue[next])
			next++
		}
		c.outbound.Write(out)
		out = out[:0]
	}
	c.queue = append(c.queue[:0], c.queue[next:]...)
	c.shard.KeepScratch(out)
	c.outbound.Watch()
	for _, s := range c.settled {
		c.standIn(s.a, s.why)
	}
	c.settled = c.settled[:0]
	c.flushing = false
	c.finish()
}

// appendCall appends the call with this id, if it was not withdrawn. What came as
// HTTP is converted; what is Dubbo goes on as it is, under the new id.
func (c *client) appendCall(dst []byte, id int64) []byte {
	call := c.calls.find(id)
	if call == nil {
		return dst
	}
	req := call.a.Request()
	if req.Codec != protocol.CodecHTTP {
		call.sent = true
		if req.OneWay {
			c.settled = append(c.settled, localReply{a: call.a})
		}
		return dubbo.AppendFrame(dst, &dubbo.Frame{
			Request: true, TwoWay: !req.OneWay, Serialization: dubbo.SerializationOf(req.Codec), ID: id, Body: req.Body,
		})
	}
	parsed := &c.up.call
	err := parsed.Parse(req)
	if err == nil {
		dst, err = parsed.AppendFrame(dst, c.up.serialization, id)
	}
	if err != nil {
		c.settled = append(c.settled, localReply{call.a, fault.OfCall(err)})
		return dst
	}
	call.sent, call.converted, call.valueOnly = true, true, parsed.Bare
	return dst
}

// standIn answers a in the provider's place: the call was sent and wants no
// answer, or it could not be made.
func (c *client) standIn(a *exchange.Attempt, f *fault.Failure) {
	c.forget(a)
	ans := c.up.pool.Response()
	if f != nil {
		ans.BodyBuffer = c.shard.Buffers.Get(0)
		text := append(append(ans.BodyBuffer.B[:0], f.Text...), '\n')
		fill(ans, text, dubbo.Reply{Status: f.Status, Code: f.Code, ContentType: "text/plain; charset=utf-8"})
	} else {
		ans.Codec = a.Codec()
		ans.Status, ans.RPC = 200, uint8(dubbo.StatusOK)
	}
	ans.Hold()
	a.AnsweredLocally(ans)
}

// onAnswer hands the answer f, whose body is here, to the attempt that waits for
// it. An exhausted pool has turned the call away before it began.
func (c *client) onAnswer(f *dubbo.Frame, call *call, body *bytebufferpool.ByteBuffer) {
	a, converted, bare := call.a, call.converted, call.valueOnly
	c.forget(a)
	codec, known := dubbo.CodecOf(f.Serialization)
	ans := c.up.pool.Response()
	ans.HeadBuffer = body
	failure := (*fault.Failure)(nil)
	switch {
	case f.Status == dubbo.StatusPoolExhausted:
		failure = fault.PoolExhausted
	case converted:
		f.Body = body.B
		failure = c.convert(ans, f, bare)
	case !known:
		failure = fault.Malformed
	default:
		ans.Codec = codec
		ans.Status, ans.RPC, ans.Body = f.Status.HTTP(), uint8(f.Status), body.B
	}
	if failure != nil {
		ans.Release()
		a.Failed(failure)
		return
	}
	ans.Hold()
	a.Answered(ans)
}
