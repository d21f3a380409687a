package dubbo

import (
	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/dubbo"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/mux"
	"github.com/remora-proxy/remora/proxy/race"
)

// flush writes the queued calls together.
func (c *client) flush() {
	if !c.state.sends() {
		return
	}
	c.flushing = true
	out, next := c.shard.Scratch[:0], 0
	for next < len(c.queue) {
		if c.conn.Buffered() > mux.MaxOutbound {
			c.conn.AwaitRoom(mux.MaxOutbound, &c.out)
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
	for _, r := range c.local {
		c.respondLocally(r.a, r.why)
	}
	c.local = c.local[:0]
	c.flushing = false
	c.closeIfDone()
}

// appendCall appends the call with this id, unless it was cancelled. An HTTP request is
// converted; the body of a Dubbo call is sent under the new id, with its timeouts shortened.
func (c *client) appendCall(dst []byte, id int64) []byte {
	call := c.calls.find(id)
	if call == nil {
		return dst
	}
	out := call.a.Outgoing()
	req := out.Request()
	if req.Codec != protocol.CodecHTTP {
		call.sent = true
		if req.OneWay {
			c.local = append(c.local, localReply{a: call.a})
		}
		f := dubbo.Frame{Request: true, TwoWay: !req.OneWay, Serialization: dubbo.SerializationOf(req.Codec), ID: id, Body: req.Body}
		dst = dubbo.AppendFrame(dst, &f)
		if req.Timed {
			c.up.invocation.SetTimeLeft(f.Serialization, dst[len(dst)-len(req.Body):], out.TimeLeft())
		}
		return dst
	}
	parsed := c.up.scratch
	err := parsed.Parse(req)
	if err == nil {
		if req.Timed || c.up.service.Config.TimeoutHeader {
			parsed.SetTimeLeft(out.TimeLeft())
		}
		dst, err = parsed.AppendFrame(dst, c.up.serialization, id)
	}
	if err != nil {
		c.local = append(c.local, localReply{call.a, fault.OfCall(err)})
		return dst
	}
	call.sent, call.converted, call.valueOnly = true, true, parsed.Bare
	return dst
}

// respondLocally gives a a response in the provider's place. f says why the request could not be
// converted; it is nil for a one-way call, which was sent.
func (c *client) respondLocally(a *race.Attempt, f *fault.Failure) {
	c.forget(a)
	res := a.NewResponse()
	if f != nil {
		res.BodyBuffer = c.shard.Buffers.Get(0)
		text := append(append(res.BodyBuffer.B[:0], f.Text...), '\n')
		fill(res, text, dubbo.Reply{Status: f.Status, Code: f.Code, ContentType: "text/plain; charset=utf-8"})
	} else {
		res.Codec = a.Outgoing().Codec()
		res.Status, res.RPC = 200, uint8(dubbo.StatusOK)
	}
	res.Charge()
	a.RespondLocally(res)
}

// onResponse passes the response f to its attempt. A provider with an exhausted pool has not
// begun the call, so that fails the attempt.
func (c *client) onResponse(f *dubbo.Frame, call *call, body *bytebufferpool.ByteBuffer) {
	a, converted, valueOnly := call.a, call.converted, call.valueOnly
	c.forget(a)
	codec, known := dubbo.CodecOf(f.Serialization)
	res := a.NewResponse()
	res.HeadBuffer = body
	failure := (*fault.Failure)(nil)
	switch {
	case f.Status == dubbo.StatusPoolExhausted:
		failure = fault.PoolExhausted
	case converted:
		f.Body = body.B
		failure = c.convert(res, f, valueOnly)
		f.Body = nil // the reader keeps f, and would keep the memory
	case !known:
		failure = fault.Malformed
	default:
		res.Codec = codec
		res.Status, res.RPC, res.Body = f.Status.HTTP(), uint8(f.Status), body.B
	}
	if failure != nil {
		res.Release()
		a.Fail(failure)
		return
	}
	res.Charge()
	a.Respond(res)
}

// convert makes res the HTTP response for f, whose body is in res.HeadBuffer.
func (c *client) convert(res *race.Response, f *dubbo.Frame, valueOnly bool) *fault.Failure {
	res.BodyBuffer = c.shard.Buffers.Get(0)
	text, reply, err := dubbo.AppendReply(res.BodyBuffer.B[:0], f, valueOnly, int(c.shard.MessageLimits.Message))
	switch {
	case err == dubbo.ErrResponseTooLarge:
		return fault.ResponseTooLarge
	case err != nil:
		return fault.Malformed
	}
	fill(res, text, reply)
	c.shard.Buffers.Release(&res.HeadBuffer)
	return nil
}

// fill sets status, headers and body of res. text, in the memory of res.BodyBuffer, is the body;
// the values of the headers are appended to it.
func fill(res *race.Response, text []byte, reply dubbo.Reply) {
	end := len(text)
	text = append(text, reply.ContentType...)
	code := len(text)
	text = append(text, reply.Code...)
	res.BodyBuffer.B = text
	res.Status, res.Body = reply.Status, text[:end:end]
	res.Headers = append(res.Headers, protocol.Header{Name: protocol.NameContentType, Value: text[end:code:code]})
	if reply.Code != "" {
		res.Headers = append(res.Headers, protocol.Header{Name: protocol.NameError, Value: text[code:]})
	}
	res.AddDate()
}
