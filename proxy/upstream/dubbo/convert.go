package dubbo

import (
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/dubbo"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
)

// convert makes res the HTTP response for f, whose body is in res.HeadBuffer.
func (c *client) convert(res *exchange.Response, f *dubbo.Frame, valueOnly bool) *fault.Failure {
	res.BodyBuffer = c.shard.Buffers.Get(0)
	text, reply, err := dubbo.AppendReply(res.BodyBuffer.B[:0], f, valueOnly, int(c.shard.MessageLimits.Message))
	switch {
	case err == dubbo.ErrReplyTooLarge:
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
func fill(res *exchange.Response, text []byte, reply dubbo.Reply) {
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
