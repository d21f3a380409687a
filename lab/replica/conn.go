package replica

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/remora-proxy/remora/lab/server"
	"github.com/remora-proxy/remora/lab/wire"
)

// conn is an HTTP connection.
type conn struct {
	*server.Conn
	service   *service
	msg       wire.Message
	out       []byte // the response
	filler    []byte // zeros
	continued bool   // 100 Continue was sent for msg

	http2 *http2Conn // nil unless the client speaks HTTP/2
}

func (s *service) serveHTTP(nc *server.Conn) server.Handler {
	c := &conn{Conn: nc, service: s}
	c.msg.Reset()
	return c.onInput
}

// onInput serves what is whole in in. The first bytes tell HTTP/2 from HTTP/1.1.
func (c *conn) onInput(in []byte) (used int, open bool) {
	if c.http2 != nil {
		return c.http2.onInput(in)
	}
	n := min(len(in), len(wire.Preface))
	switch {
	case string(in[:n]) != wire.Preface[:n]:
		return c.serve(in)
	case n < len(wire.Preface):
		return 0, true
	}
	c.http2 = newHTTP2(c.service, c.Conn)
	used, open = c.http2.onInput(in[n:])
	return n + used, open
}

// serve responds to the whole requests in in. It returns their length, and whether the connection
// stays open.
func (c *conn) serve(in []byte) (used int, open bool) {
	for {
		n, err := c.msg.ParseRequest(in[used:])
		switch err {
		case nil:
		case wire.ErrIncomplete:
			if c.msg.Continue && !c.msg.InHead() && !c.continued {
				c.continued = true
				return used, c.Respond([]byte("HTTP/1.1 100 Continue\r\n\r\n"))
			}
			return used, true
		default:
			c.msg.Close = true
			c.text(400, err.Error())
			return used, false
		}
		used += n
		if !c.respond() || c.msg.Close {
			return used, false
		}
		c.msg.Reset()
		c.continued = false
	}
}

// respond serves c.msg and writes the response. It reports whether that succeeded.
func (c *conn) respond() bool {
	s := c.service
	u, err := url.ParseRequestURI(string(c.msg.Target))
	if err != nil {
		return c.text(400, "bad target")
	}
	post := string(c.msg.Method) == http.MethodPost
	switch {
	case u.Path == "/compute" && (post || s.local != nil):
		s.inFlight.Add(1)
		s.log(c.msg.Nonce)
		status, err := s.compute(&c.msg)
		s.served.Add(1) // before the client can count the response
		alive := s.opts.Mode == Fast || c.Alive()
		switch {
		case !alive:
		case err != nil:
			alive = c.text(status, err.Error())
		default:
			alive = c.reply(status, "application/json", s.body)
		}
		if !alive {
			s.aborted.Add(1)
		}
		s.inFlight.Add(-1)
		return alive
	case u.Path == "/compute":
		return c.text(405, "POST only")
	case u.Path == "/echo":
		return c.reply(200, "application/octet-stream", c.msg.Body)
	case u.Path == "/bytes":
		size, err := strconv.Atoi(u.Query().Get("size"))
		if err != nil || size < 0 || size > wire.MaxBody {
			return c.text(400, "size: want at most 16 MiB")
		}
		if size > len(c.filler) {
			c.filler = make([]byte, size)
		}
		return c.reply(200, "application/octet-stream", c.filler[:size])
	case u.Path == "/healthz":
		return c.text(200, "ok")
	case u.Path == "/stats":
		b, _ := json.Marshal(s.stats()) // plain numbers and strings can't fail
		return c.reply(200, "application/json", append(b, '\n'))
	case u.Path == "/reset" && post:
		at := s.now()
		if epoch := u.Query().Get("epoch"); epoch != "" {
			ns, err := strconv.ParseInt(epoch, 10, 64)
			if err != nil {
				return c.text(400, "epoch: want Unix nanoseconds")
			}
			at = time.Unix(0, ns)
		}
		s.reset(at)
		return c.reply(204, "", nil)
	}
	return c.text(404, "no such path")
}

// text responds to c.msg with a line. It reports whether the connection is still open.
func (c *conn) text(status int, line string) bool {
	return c.reply(status, "text/plain", []byte(line+"\n"))
}

// reply responds to c.msg. It reports whether the connection is still open.
func (c *conn) reply(status int, contentType string, body []byte) bool {
	c.out = c.msg.AppendResponse(c.out[:0], status, c.service.fields, contentType, body)
	return c.Respond(c.out)
}
