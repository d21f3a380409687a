package stream

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy"
)

// readSize is how much is read at once of an answer to a request for an upgrade.
const readSize = 4 << 10

// Request implements proxy.Streams: the request goes to an endpoint, and when
// that grants the upgrade, the connections become one stream. Any other answer
// goes to the client, which is then disconnected: what it might send next was
// not asked for by anybody who reads requests here.
func (s *Server) Request(client proxy.Socket, u *proxy.StreamRequest) {
	over, ok := client.(interface{ NetConn() net.Conn })
	if !ok {
		_ = client.Close()
		return
	}
	t := &tunnel{
		srv: s, worker: u.Worker, service: u.Service, upgrade: u, down: over.NetConn().(*net.TCPConn),
		release: func() { _ = client.Close() },
	}
	if !s.start(t) {
		reset(t.down)
		_ = client.Close()
	}
}

// handshake sends the request and passes the answer on. Without a Failure the
// client has it, be it a 101 (upgraded) or a refusal.
func (t *tunnel) handshake() *proxy.Failure {
	if len(t.upgrade.Head) == 0 {
		return proxy.FailBadRequest
	}
	_ = t.up.SetDeadline(time.Now().Add(t.upgrade.Timeout))
	if _, err := t.up.Write(t.upgrade.Head); err != nil {
		return failure(err)
	}
	var in []byte
	var head http1.Head
	var resp protocol.Response
	lim := t.limits()
	for {
		n, err := http1.DecodeResponse(in, false, &resp, &head, &lim)
		switch {
		case err == http1.ErrIncomplete:
			if in, err = t.more(in); err != nil {
				return failure(err)
			}
		case err == http1.ErrMessageTooLarge:
			return proxy.FailTooLarge
		case err != nil:
			return proxy.FailMalformed
		case head.WebSocket:
			t.upgrade.Record(&resp, head.Minor, date())
			t.upgrade.Identify(&resp)
			return t.switchOver(&resp, in[n:])
		case resp.Status == 101:
			return proxy.FailMalformed // to what nobody asked for
		case resp.Status < 200:
			in = in[n:]
			head.Reset()
		default:
			t.upgrade.Record(&resp, head.Minor, date())
			t.upgrade.Identify(&resp)
			return t.answer(&resp, &head, in[n:])
		}
	}
}

func (t *tunnel) limits() http1.Limits {
	lim := &t.srv.opt.Config.Limits
	return http1.Limits{Header: int(lim.Header), Headers: lim.Headers, Message: lim.Message}
}

// more reads on behind in.
func (t *tunnel) more(in []byte) ([]byte, error) {
	n := len(in)
	in = append(in, make([]byte, readSize)...)
	m, err := t.up.Read(in[n:])
	if m > 0 {
		err = nil
	}
	return in[:n+m], err
}

// switchOver passes the 101 on, and what both sides have sent behind their
// heads.
func (t *tunnel) switchOver(resp *protocol.Response, early []byte) *proxy.Failure {
	out := http1.AppendWebSocketResponse(nil, resp)
	if len(out) == 0 {
		return proxy.FailMalformed
	}
	_ = t.down.SetWriteDeadline(time.Now().Add(t.srv.opt.Config.Timeouts.Write))
	if _, err := t.down.Write(append(out, early...)); err != nil {
		reset(t.down)
		return nil
	}
	if _, err := t.up.Write(t.upgrade.Rest); err != nil {
		reset(t.down)
		return nil
	}
	_ = t.up.SetDeadline(time.Time{})
	_ = t.down.SetDeadline(time.Time{})
	t.upgraded = true
	return nil
}

// answer passes on an answer that is no upgrade, as the whole message that it
// is, and disconnects.
func (t *tunnel) answer(resp *protocol.Response, head *http1.Head, in []byte) *proxy.Failure {
	if head.Framing != http1.NoBody {
		body := bytebufferpool.Get()
		defer bytebufferpool.Put(body)
		if f := t.body(resp, head, in, body); f != nil {
			return f
		}
	}
	out := http1.AppendResponse(nil, resp, http1.ResponseFlags{Minor: 1, Close: true})
	if len(out) == 0 {
		return proxy.FailMalformed
	}
	t.finish(out)
	return nil
}

// body reads the body of resp into buf, which it aliases then.
func (t *tunnel) body(resp *protocol.Response, head *http1.Head, in []byte, buf *bytebufferpool.ByteBuffer) *proxy.Failure {
	var body http1.Body
	lim := t.limits()
	body.Reset(head, &lim)
	for {
		_, done, err := body.Decode(in, buf)
		switch {
		case err == http1.ErrMessageTooLarge:
			return proxy.FailTooLarge
		case err != nil:
			return proxy.FailMalformed
		case done:
			resp.Body = buf.B[:body.Length()]
			return nil
		}
		if in, err = t.more(in[:0]); err != nil {
			if err == io.EOF && body.Close() == nil {
				resp.Body = buf.B[:body.Length()]
				return nil
			}
			return failure(err)
		}
	}
}

// finish writes the last answer and closes so that it arrives: a close with
// unread input would be a reset, which can destroy it.
func (t *tunnel) finish(out []byte) {
	defer t.down.Close()
	_ = t.down.SetWriteDeadline(time.Now().Add(t.srv.opt.Config.Timeouts.Write))
	if _, err := t.down.Write(out); err != nil {
		return
	}
	_ = t.down.CloseWrite()
	_ = t.down.SetReadDeadline(time.Now().Add(t.srv.flush))
	_, _ = io.Copy(io.Discard, t.down)
}

// failure says what an error of the endpoint's connection means.
func failure(err error) *proxy.Failure {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return proxy.FailDeadline
	}
	return proxy.FailReset
}

// date is the value of Date for a message of this moment.
func date() []byte { return []byte(time.Now().UTC().Format(http.TimeFormat)) }

// Answer implements proxy.Streams.
func (s *Server) Answer(client proxy.Socket, a *proxy.StreamAnswer) {
	_ = client.Close()
	a.Source.Close()
}

// Park implements proxy.Streams.
func (s *Server) Park(src *proxy.StreamSource) (token link.Token, ok bool) {
	src.Close()
	return token, false
}

// Accept implements proxy.Streams.
func (s *Server) Accept(peer proxy.Socket, _ *proxy.StreamAccept) { _ = peer.Close() }
