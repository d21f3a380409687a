package feature

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/remora-proxy/remora/lab/child"
	"github.com/remora-proxy/remora/lab/wire"
)

// Client asks a store, over connections that stay open. It gives up waiting and asks again, as
// clients of stores do.
type Client struct {
	Addr     string
	Timeout  time.Duration // of one attempt
	Attempts int

	mu   sync.Mutex
	idle []*clientConn
}

type clientConn struct {
	nc  net.Conn
	msg wire.Message
	buf []byte
}

// NewClient returns a client that waits 20 ms, and asks at most three times.
func NewClient(addr string) *Client {
	return &Client{Addr: addr, Timeout: 20 * time.Millisecond, Attempts: 3}
}

// Close closes idle connections.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.idle {
		conn.nc.Close()
	}
	c.idle = nil
}

// Get asks for some keys of a request.
func (c *Client) Get(r *Request, keys int) (err error) {
	for range c.Attempts {
		if err = c.try(r, keys); err == nil {
			return nil
		}
	}
	return fmt.Errorf("the store: %w", err)
}

func (c *Client) try(r *Request, keys int) error {
	conn, err := c.take()
	if err != nil {
		return err
	}
	conn.buf = fmt.Appendf(conn.buf[:0], "GET /get?key=%s&keys=%d&wait=%s HTTP/1.1\r\nhost: store\r\n\r\n", r.Key(), keys, c.Timeout)
	// The store responds when the timeout is over, so that the connection stays usable. The
	// deadline is for a store that is gone.
	conn.nc.SetDeadline(time.Now().Add(10 * c.Timeout))
	if _, err = conn.nc.Write(conn.buf); err == nil {
		err = conn.read()
	}
	if err != nil {
		conn.nc.Close()
		return err
	}
	c.mu.Lock()
	c.idle = append(c.idle, conn)
	c.mu.Unlock()
	if conn.msg.Status != http.StatusOK {
		return errors.New(http.StatusText(conn.msg.Status))
	}
	return nil
}

func (c *Client) take() (*clientConn, error) {
	c.mu.Lock()
	if n := len(c.idle); n > 0 {
		conn := c.idle[n-1]
		c.idle = c.idle[:n-1]
		c.mu.Unlock()
		return conn, nil
	}
	c.mu.Unlock()
	nc, err := net.DialTimeout("tcp", c.Addr, c.Timeout)
	return &clientConn{nc: nc}, err
}

// read reads the response.
func (c *clientConn) read() error {
	c.msg.Reset()
	c.buf = c.buf[:0]
	for {
		var err error
		if c.buf, err = wire.ReadMore(c.nc, c.buf); err != nil {
			return err
		}
		if _, err = c.msg.ParseResponse(c.buf, false); err != wire.ErrIncomplete {
			return err
		}
	}
}

// ResetStore resets the counts of the store at addr. Some minute begins at epoch.
func ResetStore(ctx context.Context, addr string, epoch time.Time) error {
	_, err := child.Call(ctx, http.MethodPost, fmt.Sprintf("http://%s/reset?epoch=%d", addr, epoch.UnixNano()))
	return err
}

// AskStats returns the counts of the store at addr.
func AskStats(ctx context.Context, addr string) (s StoreStats, err error) {
	b, err := child.Call(ctx, http.MethodGet, "http://"+addr+"/stats")
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	return s, err
}
