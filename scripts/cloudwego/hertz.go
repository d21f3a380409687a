package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/cloudwego/hertz/pkg/app"
	"github.com/cloudwego/hertz/pkg/app/server"
	"github.com/cloudwego/hertz/pkg/common/config"
	"github.com/cloudwego/hertz/pkg/protocol/http1/resp"
	"github.com/cloudwego/hertz/pkg/protocol/sse"
)

// maxBody is the longest request of which a whole body is accepted.
const maxBody = 8 << 20

func newHertz(more ...config.Option) *server.Hertz {
	return server.New(append(more, server.WithHostPorts(*addr), server.WithStreamBody(*stream),
		server.WithDisablePrintRoute(true), server.WithExitWaitTime(5*time.Second))...)
}

// serveEcho is the backend of e2e/strictness/differential_echo_test.go.
func serveEcho() error {
	h := newHertz()
	h.NoRoute(func(_ context.Context, c *app.RequestContext) {
		target := string(c.Request.Header.RequestURI())
		echo := "early"
		if !strings.HasPrefix(target, "/early") {
			body, err := c.Request.BodyE()
			if err != nil {
				c.AbortWithMsg(err.Error(), 500)
				return
			}
			var b strings.Builder
			fmt.Fprintf(&b, "method=%x\ntarget=%x\nbody=%x\n", c.Method(), target, body)
			c.VisitAllHeaders(func(name, value []byte) { fmt.Fprintf(&b, "header=%x\n", string(name)+": "+string(value)) })
			echo = b.String()
		}
		if string(c.Method()) == "HEAD" {
			c.Header("X-Echo", strings.ReplaceAll(echo, "\n", " "))
		}
		c.String(200, "%s", echo)
	})
	h.Spin()
	return nil
}

// serveHertz has the pages of socketApp in e2e/peers/socket_test.go, and more.
func serveHertz() error {
	options := []config.Option{server.WithMaxRequestBodySize(maxBody)}
	if *age > 0 {
		options = append(options, server.WithIdleTimeout(*age))
	}
	h := newHertz(options...)
	h.Use(func(ctx context.Context, c *app.RequestContext) {
		begin(string(c.GetHeader("X-Once")))
		c.Response.Header.Set("X-Nonce", string(c.GetHeader("X-Nonce")))
		c.Response.Header.Set("X-Empty", "") // c.Header would remove it
		c.Next(ctx)
	})
	h.Any("/echo", echoPage)
	h.Any("/request", func(_ context.Context, c *app.RequestContext) {
		body := c.Request.Body() // before the trailers
		trailers := map[string][]string{}
		c.Request.Header.Trailer().VisitAll(func(name, value []byte) {
			trailers[string(name)] = append(trailers[string(name)], string(value))
		})
		said, _ := json.Marshal(map[string]any{"Target": string(c.Request.Header.RequestURI()), "Host": string(c.Host()),
			"Trailers": trailers, "Body": len(body)})
		c.Data(200, "application/json", said)
	})
	h.Any("/size/:n", func(_ context.Context, c *app.RequestContext) {
		n, _ := strconv.Atoi(c.Param("n"))
		c.Data(200, "text/plain", bytes.Repeat([]byte("x"), n))
	})
	h.Any("/status/:n", func(_ context.Context, c *app.RequestContext) {
		n, _ := strconv.Atoi(c.Param("n"))
		c.String(n, "status %d", n)
	})
	h.Any("/unread", func(_ context.Context, c *app.RequestContext) { c.String(200, "unread") })
	h.Any("/pieces", piecesPage)
	h.GET("/events", eventsPage)
	h.Spin()
	return nil
}

// echoPage returns the body: whole, in chunks, with trailers, or up to the end of the connection.
func echoPage(_ context.Context, c *app.RequestContext) {
	body := append([]byte(nil), c.Request.Body()...)
	switch string(c.URI().QueryString()) {
	case "close":
		c.SetConnectionClose()
	case "chunked":
		c.SetBodyStream(bytes.NewBuffer(body), -1)
		return
	case "trailers":
		sum := sha256.Sum256(body)
		_ = c.Response.Header.Trailer().Set("X-Sha256", hex.EncodeToString(sum[:]))
		c.SetBodyStream(bytes.NewBuffer(body), -1)
		return
	case "end":
		w := c.GetConn()
		fmt.Fprintf(w, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n%s", body)
		_ = w.Flush()
		_ = w.Close()
		return
	}
	c.Data(200, "application/octet-stream", body)
}

// piecesPage sends each piece of the body back as it arrives. It needs -stream.
func piecesPage(_ context.Context, c *app.RequestContext) {
	c.Response.HijackWriter(resp.NewChunkedBodyWriter(&c.Response, c.GetWriter()))
	b := make([]byte, 32<<10)
	for {
		n, err := c.RequestBodyStream().Read(b)
		if n > 0 {
			if _, err := c.Write(b[:n]); err != nil {
				return
			}
			if err := c.Flush(); err != nil {
				return
			}
		}
		if err != nil {
			if err != io.EOF {
				fmt.Println("pieces:", err)
			}
			return
		}
	}
}

// eventsPage sends ten events, or events until the client has left.
func eventsPage(_ context.Context, c *app.RequestContext) {
	w := sse.NewWriter(c)
	for i := 0; i < 10 || c.Query("endless") != ""; i++ {
		if err := w.WriteEvent(strconv.Itoa(i), "tick", []byte("event")); err != nil {
			fmt.Println("left")
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}
