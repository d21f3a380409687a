package replica

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/remora-proxy/remora/lab/wire"
)

// conn is an HTTP connection. One goroutine reads and responds.
type conn struct {
	peer
	service   *service
	in        []byte // input that is not parsed yet
	msg       wire.Message
	out       []byte // the response
	filler    []byte // zeros
	continued bool   // 100 Continue was sent for msg

	http2 *http2Conn // nil unless the client speaks HTTP/2
}

// serveHTTP serves a connection until it ends.
func (s *service) serveHTTP(p peer) {
	c := &conn{peer: p, service: s}
	c.msg.Reset()
	for open := true; open; {
		var err error
		if c.in, err = wire.ReadMore(c.nc, c.in); err != nil {
			return
		}
		switch {
		case !c.onPreface():
			open = c.serve()
		case c.http2 != nil:
			open = c.http2.onInput(c)
		}
	}
}

// serve responds to the whole requests in c.in. It reports whether the connection stays open.
func (c *conn) serve() bool {
	used := 0
	defer func() { c.in = append(c.in[:0], c.in[used:]...) }()
	for {
		n, err := c.msg.ParseRequest(c.in[used:])
		switch err {
		case nil:
		case wire.ErrIncomplete:
			if c.msg.Continue && !c.msg.InHead() && !c.continued {
				c.continued = true
				return c.write([]byte("HTTP/1.1 100 Continue\r\n\r\n"))
			}
			return true
		default:
			c.msg.Close = true
			c.text(400, err.Error())
			return false
		}
		used += n
		if !c.respond() || c.msg.Close {
			return false
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
		status, err := s.compute(c.msg.Key)
		s.served.Add(1) // before the client can count the response
		alive := s.opts.Mode == Fast || c.alive()
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
	return c.write(c.out)
}
