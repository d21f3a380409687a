package proxy

import (
	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/dubbo"
)

// flush writes the calls that have not left, together.
func (c *dubboClient) flush() {
	if c.state != dubboOpen {
		return
	}
	c.flushing = true
	out, next := c.w.scratch[:0], 0
	for next < len(c.queue) {
		if c.conn.Buffered() > maxOutbound {
			c.w.loop.After(retryWrite, &c.stuffed)
			break
		}
		for next < len(c.queue) && len(out) < batchSize {
			out = c.appendCall(out, c.queue[next])
			next++
		}
		c.outbound.write(out)
		out = out[:0]
	}
	c.queue = append(c.queue[:0], c.queue[next:]...)
	c.w.keepScratch(out)
	c.outbound.watch()
	for _, s := range c.settled {
		c.standIn(s.a, s.why)
	}
	c.settled = c.settled[:0]
	c.flushing = false
	c.finish()
}

// appendCall appends the call with this id, if it was not withdrawn. What came as
// HTTP is converted; what is Dubbo goes on as it is, under the new id.
func (c *dubboClient) appendCall(dst []byte, id int64) []byte {
	call := c.calls.find(id)
	if call == nil {
		return dst
	}
	req := call.a.request()
	if req.Codec != protocol.CodecHTTP {
		call.sent = true
		if req.OneWay {
			c.settled = append(c.settled, stood{a: call.a})
		}
		return dubbo.AppendFrame(dst, &dubbo.Frame{
			Request: true, TwoWay: !req.OneWay, Serialization: serializationOf(req.Codec), ID: id, Body: req.Body,
		})
	}
	parsed := &c.up.call
	err := parsed.Parse(req)
	if err == nil {
		dst, err = parsed.AppendFrame(dst, c.up.serialization, id)
	}
	if err != nil {
		c.settled = append(c.settled, stood{call.a, callFailure(err)})
		return dst
	}
	call.sent, call.converted, call.bare = true, true, parsed.Bare
	return dst
}

// standIn answers a in the provider's place: the call was sent and wants no
// answer, or it could not be made.
func (c *dubboClient) standIn(a *attempt, f *Failure) {
	c.forget(a)
	ans := c.up.pool.answer()
	if f != nil {
		ans.body = c.w.buffers.Get(0)
		text := append(append(ans.body.B[:0], f.Text...), '\n')
		fill(ans, text, dubbo.Reply{Status: f.Status, Code: f.Code, ContentType: "text/plain; charset=utf-8"})
	} else {
		ans.codec = a.codec()
		ans.Status, ans.RPC = 200, uint8(dubbo.StatusOK)
	}
	ans.hold()
	a.stoodIn(ans)
}

// onAnswer hands the answer f, whose body is here, to the attempt that waits for
// it. An exhausted pool has turned the call away before it began.
func (c *dubboClient) onAnswer(f *dubbo.Frame, call *dubboCall, body *bytebufferpool.ByteBuffer) {
	a, converted, bare := call.a, call.converted, call.bare
	c.forget(a)
	codec, known := dubboCodec(f.Serialization)
	ans := c.up.pool.answer()
	ans.head = body
	failure := (*Failure)(nil)
	switch {
	case f.Status == dubbo.StatusPoolExhausted:
		failure = FailExhausted
	case converted:
		f.Body = body.B
		failure = c.convert(ans, f, bare)
	case !known:
		failure = FailMalformed
	default:
		ans.codec = codec
		ans.Status, ans.RPC, ans.Body = f.Status.HTTP(), uint8(f.Status), body.B
	}
	if failure != nil {
		ans.Release()
		a.failed(failure)
		return
	}
	ans.hold()
	a.answered(ans)
}

// convert makes the answer f, whose body is ans.head, one of HTTP.
func (c *dubboClient) convert(ans *answer, f *dubbo.Frame, bare bool) *Failure {
	ans.body = c.w.buffers.Get(0)
	text, reply, err := dubbo.AppendReply(ans.body.B[:0], f, bare, int(c.w.httpLimits.Message))
	switch {
	case err == dubbo.ErrReplyTooLarge:
		return FailTooLarge
	case err != nil:
		return FailMalformed
	}
	fill(ans, text, reply)
	c.w.buffers.Put(ans.head)
	ans.head = nil
	return nil
}

// fill fills the answer with text, which is ans.body's memory, as the body.
// The headers' values go behind it.
func fill(ans *answer, text []byte, reply dubbo.Reply) {
	end := len(text)
	text = append(text, reply.ContentType...)
	code := len(text)
	text = append(text, reply.Code...)
	ans.body.B = text
	ans.Status, ans.Body = reply.Status, text[:end:end]
	ans.Headers = append(ans.Headers, protocol.Header{Name: nameContentType, Value: text[end:code:code]})
	if reply.Code != "" {
		ans.Headers = append(ans.Headers, protocol.Header{Name: nameError, Value: text[code:]})
	}
	ans.datestamp()
}
