package replica

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/cloudwego/netpoll"

	"github.com/remora-proxy/remora/lab/wire"
)

// conn is an HTTP connection. It has no lock: netpoll runs one onHTTPRequest of it at a time.
type conn struct {
	service   *service
	in        []byte // input that is not parsed yet
	msg       wire.Message
	out       []byte // the response
	continued bool   // 100 Continue was sent for msg

	http2 *http2Conn // nil unless the client speaks HTTP/2
}

type connKey struct{}

func (r *Replica) onHTTPConnect(ctx context.Context, _ netpoll.Connection) context.Context {
	c := &conn{service: r.service}
	c.msg.Reset()
	return context.WithValue(ctx, connKey{}, c)
}

// onHTTPRequest runs on its own goroutine whenever there is input.
func onHTTPRequest(ctx context.Context, nc netpoll.Connection) (err error) {
	c := ctx.Value(connKey{}).(*conn)
	c.in, err = appendInput(c.in, nc)
	if err == nil && c.onPreface(nc) {
		if c.http2 == nil {
			return nil
		}
		return c.http2.onInput(c)
	}
	// A client that pipelines without reading could make the input grow without limit.
	if err != nil || !c.serve(nc) || len(c.in)+nc.Reader().Len() > wire.MaxHead+2*wire.MaxBody {
		return nc.Close()
	}
	return nil
}

// appendInput takes all input of nc: netpoll calls its handler again while some is left.
func appendInput(dst []byte, nc netpoll.Connection) ([]byte, error) {
	in, err := nc.Reader().Next(nc.Reader().Len())
	dst = append(dst, in...)
	nc.Reader().Release()
	return dst, err
}

// serve responds to the whole requests in c.in. It reports whether the connection stays open.
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
				return write(nc, []byte("HTTP/1.1 100 Continue\r\n\r\n"))
			}
			return true
		default:
			c.msg.Close = true
			c.text(nc, 400, err.Error())
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
		return c.text(nc, 400, "bad target")
	}
	post := string(c.msg.Method) == http.MethodPost
	switch {
	case u.Path == "/compute" && post:
		s.inFlight.Add(1)
		s.work()
		s.served.Add(1) // before the client can count the response
		alive := nc.IsActive() && c.write(nc, 200, "application/json", s.body)
		if !alive {
			s.aborted.Add(1)
		}
		s.inFlight.Add(-1)
		return alive
	case u.Path == "/compute":
		return c.text(nc, 405, "POST only")
	case u.Path == "/echo":
		return c.write(nc, 200, "application/octet-stream", c.msg.Body)
	case u.Path == "/healthz":
		return c.text(nc, 200, "ok")
	case u.Path == "/stats":
		b, _ := json.Marshal(s.stats()) // plain numbers and strings can't fail
		return c.write(nc, 200, "application/json", append(b, '\n'))
	case u.Path == "/reset" && post:
		at := s.now()
		if epoch := u.Query().Get("epoch"); epoch != "" {
			ns, err := strconv.ParseInt(epoch, 10, 64)
			if err != nil {
				return c.text(nc, 400, "epoch: want Unix nanoseconds")
			}
			at = time.Unix(0, ns)
		}
		s.reset(at)
		return c.write(nc, 204, "", nil)
	}
	return c.text(nc, 404, "no such path")
}

// text responds to c.msg with a line. It reports whether the connection is still open.
func (c *conn) text(nc netpoll.Connection, status int, line string) bool {
	return c.write(nc, status, "text/plain", []byte(line+"\n"))
}

// write responds to c.msg. It reports whether the connection is still open.
func (c *conn) write(nc netpoll.Connection, status int, contentType string, body []byte) bool {
	c.out = c.msg.AppendResponse(c.out[:0], status, c.service.fields, contentType, body)
	return write(nc, c.out)
}

func write(nc netpoll.Connection, b []byte) bool {
	if _, err := nc.Writer().WriteBinary(b); err != nil {
		return false
	}
	// Flush returns once the kernel has all of b, which may then be reused.
	return nc.Writer().Flush() == nil
}
