package dubbo

import (
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/dubbo"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
)

// convert makes the answer f, whose body is ans.head, one of HTTP.
func (c *client) convert(ans *exchange.Response, f *dubbo.Frame, bare bool) *fault.Failure {
	ans.BodyBuffer = c.shard.Buffers.Get(0)
	text, reply, err := dubbo.AppendReply(ans.BodyBuffer.B[:0], f, bare, int(c.shard.MessageLimits.Message))
	switch {
	case err == dubbo.ErrReplyTooLarge:
		return fault.ResponseTooLarge
	case err != nil:
		return fault.Malformed
	}
	fill(ans, text, reply)
	c.shard.Buffers.Put(ans.HeadBuffer)
	ans.HeadBuffer = nil
	return nil
}

// fill fills the answer with text, which is ans.body's memory, as the body.
// The headers' values go behind it.
func fill(ans *exchange.Response, text []byte, reply dubbo.Reply) {
	end := len(text)
	text = append(text, reply.ContentType...)
	code := len(text)
	text = append(text, reply.Code...)
	ans.BodyBuffer.B = text
	ans.Status, ans.Body = reply.Status, text[:end:end]
	ans.Headers = append(ans.Headers, protocol.Header{Name: protocol.NameContentType, Value: text[end:code:code]})
	if reply.Code != "" {
		ans.Headers = append(ans.Headers, protocol.Header{Name: protocol.NameError, Value: text[code:]})
	}
	ans.AddDate()
}
