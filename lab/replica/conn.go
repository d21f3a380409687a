package replica

import (
	"context"
	"encoding/json"
	"net/url"
	"strconv"
	"time"

	"github.com/cloudwego/netpoll"

	"github.com/remora-proxy/remora/lab/wire"
)

// conn is the state of one HTTP connection. It needs no lock: netpoll runs one onRequest of a
// connection at a time.
type conn struct {
	service   *service
	in        []byte // input that is not parsed yet
	msg       wire.Message
	out       []byte // the response
	continued bool   // 100 Continue was sent for msg
}

type connKey struct{}

func (r *Replica) onConnect(ctx context.Context, _ netpoll.Connection) context.Context {
	c := &conn{service: r.service}
	c.msg.Reset()
	return context.WithValue(ctx, connKey{}, c)
}

// onRequest runs on its own goroutine whenever there is input. It takes all input: netpoll
// calls it again while some is left.
func onRequest(ctx context.Context, nc netpoll.Connection) error {
	c := ctx.Value(connKey{}).(*conn)
	for {
		n := nc.Reader().Len()
		if n == 0 {
			return nil
		}
		b, err := nc.Reader().Next(n)
		if err != nil {
			return nc.Close()
		}
		c.in = append(c.in, b...)
		nc.Reader().Release()
		if !c.serve(nc) {
			return nc.Close()
		}
		// A client that pipelines without reading could make this grow without limit.
		if len(c.in)+nc.Reader().Len() > wire.MaxHead+2*wire.MaxBody {
			return nc.Close()
		}
	}
}

// serve responds to the whole requests in c.in, one after another. It reports whether the
// connection stays open.
func (c *conn) serve(nc netpoll.Connection) bool {
	used := 0
	defer func() { c.in = append(c.in[:0], c.in[used:]...) }()
	for {
		n, err := c.msg.ParseRequest(c.in[used:])
		switch err {
		case nil:
		case wire.ErrIncomplete:
			if c.msg.Continue && !c.msg.InHead() && !c.continued {
				c.continued = true
				return write(nc, append(c.out[:0], "HTTP/1.1 100 Continue\r\n\r\n"...))
			}
			return true
		default:
			c.msg.Close = true
			write(nc, c.response(400, "text/plain", []byte(err.Error()+"\n")))
			return false
		}
		used += n
		if !c.respond(nc) || c.msg.Close {
			return false
		}
		c.msg.Reset()
		c.continued = false
	}
}

// respond serves c.msg and writes the response. It reports whether that succeeded.
func (c *conn) respond(nc netpoll.Connection) bool {
	s := c.service
	u, err := url.ParseRequestURI(string(c.msg.Target))
	if err != nil {
		return write(nc, c.response(400, "text/plain", []byte("bad target\n")))
	}
	method := string(c.msg.Method)
	switch {
	case u.Path == "/compute" && method == "POST":
		s.inFlight.Add(1)
		s.work()
		alive := nc.IsActive() && write(nc, c.response(200, "application/json", s.body))
		s.served.Add(1)
		if !alive {
			s.aborted.Add(1)
		}
		s.inFlight.Add(-1)
		return alive
	case u.Path == "/compute":
		return write(nc, c.response(405, "text/plain", []byte("POST only\n")))
	case u.Path == "/echo":
		return write(nc, c.response(200, "application/octet-stream", c.msg.Body))
	case u.Path == "/healthz":
		return write(nc, c.response(200, "text/plain", []byte("ok\n")))
	case u.Path == "/stats":
		b, _ := json.Marshal(s.stats()) // plain numbers and strings can't fail
		return write(nc, c.response(200, "application/json", append(b, '\n')))
	case u.Path == "/reset" && method == "POST":
		return write(nc, c.reset(u.Query().Get("epoch")))
	}
	return write(nc, c.response(404, "text/plain", []byte("no such path\n")))
}

func (c *conn) reset(epoch string) []byte {
	at := c.service.now()
	if epoch != "" {
		ns, err := strconv.ParseInt(epoch, 10, 64)
		if err != nil {
			return c.response(400, "text/plain", []byte("epoch: want Unix nanoseconds\n"))
		}
		at = time.Unix(0, ns)
	}
	c.service.reset(at)
	return c.response(204, "", nil)
}

// response makes the response to c.msg, which is valid until the next call.
func (c *conn) response(status int, contentType string, body []byte) []byte {
	b := append(c.out[:0], "HTTP/1.1 "...)
	b = strconv.AppendInt(b, int64(status), 10)
	b = append(b, ' ')
	b = append(b, reasons[status]...)
	b = append(b, "\r\nx-replica: "...)
	b = append(b, c.service.opts.Name...)
	if len(c.msg.Nonce) > 0 {
		b = append(b, "\r\nx-nonce: "...)
		b = append(b, c.msg.Nonce...)
	}
	if status != 204 {
		b = append(b, "\r\ncontent-type: "...)
		b = append(b, contentType...)
		b = append(b, "\r\ncontent-length: "...)
		b = strconv.AppendInt(b, int64(len(body)), 10)
	}
	if c.msg.Close {
		b = append(b, "\r\nconnection: close"...)
	}
	b = append(b, "\r\n\r\n"...)
	if string(c.msg.Method) != "HEAD" {
		b = append(b, body...)
	}
	c.out = b
	return b
}

var reasons = map[int]string{200: "OK", 204: "No Content", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed"}

// write sends b. It reports whether the connection is still open.
func write(nc netpoll.Connection, b []byte) bool {
	if _, err := nc.Writer().WriteBinary(b); err != nil {
		return false
	}
	// Flush returns once the kernel has all of b, which may then be reused.
	return nc.Writer().Flush() == nil
}
