package load

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync/atomic"
	"time"
)

// clientsOfTarget is how many clients share the calls to a target.
const clientsOfTarget = 8

// defaultMethod is called if a target names none. A replica takes every method for its own.
const defaultMethod = "/remora.lab.Compute/Compute"

// calls makes unary gRPC calls to one target with clients of the standard library. Each has one
// connection of HTTP/2, as a channel of gRPC does.
type calls struct {
	gen     *generator
	clients [clientsOfTarget]*http.Client
	request http.Request // of each call
	message []byte
	turn    atomic.Uint64
	dialled atomic.Int64
}

func newCalls(g *generator, u *url.URL) *calls {
	to := &url.URL{Scheme: "http", Host: u.Host, Path: u.Path}
	if u.Path == "" || u.Path == "/" {
		to.Path = defaultMethod
	}
	prefix := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(g.opts.Body))) // not compressed
	c := &calls{gen: g, message: slices.Concat(prefix, g.opts.Body), request: http.Request{
		Method: http.MethodPost, URL: to, Host: to.Host,
		Header: http.Header{"Content-Type": {"application/grpc"}, "Te": {"trailers"}, "User-Agent": {"grpc-load"}},
	}}
	for _, h := range g.opts.Header {
		c.request.Header.Add(h.Name, h.Value)
	}
	for i := range c.clients {
		tr := &http.Transport{Protocols: new(http.Protocols), DialContext: c.dial}
		tr.Protocols.SetUnencryptedHTTP2(true)
		c.clients[i] = &http.Client{Transport: tr}
	}
	return c
}

func (c *calls) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	var d net.Dialer
	nc, err := d.DialContext(ctx, network, addr)
	if err == nil {
		c.dialled.Add(1)
	}
	return nc, err
}

// connect does nothing: the first calls connect.
func (c *calls) connect() error { return nil }

func (c *calls) connections() int { return int(c.dialled.Load()) }

func (c *calls) close() {
	for _, client := range c.clients {
		client.CloseIdleConnections()
	}
}

func (c *calls) dispatch(r request) {
	client := c.clients[c.turn.Add(1)%clientsOfTarget]
	r.sent = time.Now()
	go func() {
		end := c.call(client, r)
		c.gen.done(c, r, time.Now(), end)
	}()
}

func (c *calls) call(client *http.Client, r request) outcome {
	deadline := r.due.Add(c.gen.opts.Timeout)
	ctx, cancel := context.WithDeadline(c.gen.ctx, deadline)
	defer cancel()
	req := c.request.Clone(ctx)
	req.Header.Set("Grpc-Timeout", fmt.Sprintf("%dm", time.Until(deadline).Milliseconds()))
	req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(c.message)), int64(len(c.message))
	if r.counted {
		c.gen.rec.sent(r.sent.Sub(r.due))
	}
	return outcomeOf(client.Do(req))
}

// outcomeOf reads the response to its end.
func outcomeOf(resp *http.Response, err error) outcome {
	if err == nil {
		defer resp.Body.Close()
		var body []byte
		if body, err = io.ReadAll(resp.Body); err == nil {
			status := resp.Trailer.Get("Grpc-Status") + resp.Header.Get("Grpc-Status")
			whole := len(body) >= 5 && int(binary.BigEndian.Uint32(body[1:])) == len(body)-5
			switch {
			case resp.StatusCode != http.StatusOK || status != "0" && status != "":
				return outcome{resp.StatusCode, ErrStatus, resp.Header.Get("X-Remora-Error")}
			case status == "" || !whole:
				return outcome{resp.StatusCode, ErrProtocol, ""}
			}
			return outcome{status: resp.StatusCode}
		}
	}
	var failed *net.OpError
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return outcome{kind: ErrTimeout}
	case errors.As(err, &failed) && failed.Op == "dial":
		return outcome{kind: ErrConnect}
	}
	return outcome{kind: ErrReset}
}
