package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/cloudwego/kitex/client"
	"github.com/cloudwego/kitex/client/callopt"
	"github.com/cloudwego/kitex/client/genericclient"
	"github.com/cloudwego/kitex/pkg/generic"
	"github.com/cloudwego/kitex/pkg/kerrors"
	"github.com/cloudwego/kitex/pkg/transmeta"
)

// idl is the service of Thrift. Kitex reads it at run time, so no code is generated.
const idl = `
namespace go remora
struct Message { 1: string id, 2: binary body, 3: string wish }
service Echo {
	Message Call(1: Message m)
	Message Chat(1: Message m) (streaming.mode="bidirectional")
}`

// thriftMessage is Message, in the JSON of Kitex's generic calls.
type thriftMessage struct {
	ID   string `json:"id"`
	Body []byte `json:"body"`
	Wish string `json:"wish"`
}

func thriftIDL() (generic.Generic, error) {
	p, err := generic.NewThriftContentWithAbsIncludePathProvider("echo.thrift", map[string]string{"echo.thrift": idl})
	if err != nil {
		return nil, err
	}
	g, err := generic.JSONThriftGeneric(p)
	if err != nil {
		return nil, err
	}
	return g, generic.SetBinaryWithBase64(g, true)
}

// thriftService returns what it gets, and does what a message wishes.
func thriftService() *generic.ServiceV2 {
	return &generic.ServiceV2{
		GenericCall: func(_ context.Context, _, _ string, request any) (any, error) {
			var m thriftMessage
			if err := json.Unmarshal([]byte(request.(string)), &m); err != nil {
				return nil, err
			}
			begin(m.ID)
			switch m.Wish {
			case "business error":
				return nil, kerrors.NewBizStatusErrorWithExtra(404, "näht", map[string]string{"why": "wished"})
			case "error":
				return nil, errors.New("as wished")
			case "panic":
				panic("as wished")
			case "wait":
				time.Sleep(time.Second)
			}
			return request, nil
		},
		BidiStreaming: func(ctx context.Context, _, _ string, s generic.BidiStreamingServer) error {
			for {
				m, err := s.Recv(ctx)
				if err == io.EOF {
					return nil
				}
				if err != nil {
					return err
				}
				if err := s.Send(ctx, m); err != nil {
					return err
				}
			}
		},
	}
}

// thriftClient calls Echo.
type thriftClient struct{ genericclient.Client }

// callThrift runs cases of a client of Thrift.
func callThrift() error {
	g, err := thriftIDL()
	if err != nil {
		return err
	}
	options, err := clientOptions()
	if err != nil {
		return err
	}
	options = append(options, client.WithTransportProtocol(transports[*transport]), client.WithMetaHandler(transmeta.ClientTTHeaderHandler))
	if *transport == "mux" {
		options = append(options, client.WithMuxConnection(2))
	} else {
		options = append(options, client.WithLongConnection(pool))
	}
	opened, err := genericclient.NewClient(serviceName, g, options...)
	if err != nil {
		return err
	}
	c := thriftClient{opened}
	return runCases(map[string]func(ctx context.Context) error{
		"echo": func(ctx context.Context) error {
			for _, size := range []int{0, 1, 1000, 70_000, 5 << 20} {
				if err := c.echo(ctx, "", size); err != nil {
					return err
				}
			}
			return nil
		},
		"many": func(ctx context.Context) error {
			return together(400, func(i int) error { return c.echo(ctx, fmt.Sprintf("many-%d", i), i*37) })
		},
		"oneway": func(ctx context.Context) error { return tell(ctx, options) },
		"errors": func(ctx context.Context) error {
			_, err := c.call(ctx, thriftMessage{Wish: "error"})
			if err == nil || !strings.Contains(err.Error(), "as wished") {
				return fmt.Errorf("an error arrives as %v", err)
			}
			if _, err := c.call(ctx, thriftMessage{Wish: "panic"}); err == nil || !strings.Contains(err.Error(), "panic") {
				return fmt.Errorf("a panic arrives as %v", err)
			}
			return c.echo(ctx, "", 10)
		},
		"business_error": func(ctx context.Context) error { // needs TTHeader
			_, err := c.call(ctx, thriftMessage{Wish: "business error"})
			if e, ok := kerrors.FromBizStatusError(err); !ok || e.BizStatusCode() != 404 || e.BizMessage() != "näht" || e.BizExtra()["why"] != "wished" {
				return fmt.Errorf("a business error arrives as %v", err)
			}
			return c.echo(ctx, "", 10)
		},
		"timeout": func(ctx context.Context) error {
			_, err := c.call(ctx, thriftMessage{Wish: "wait"}, callopt.WithRPCTimeout(20*time.Millisecond))
			if !errors.Is(err, kerrors.ErrRPCTimeout) {
				return fmt.Errorf("no timeout: %v", err)
			}
			return together(50, func(i int) error { return c.echo(ctx, "", i) })
		},
		"stream": c.chat,
	})
}

func (c thriftClient) call(ctx context.Context, m thriftMessage, options ...callopt.Option) (got thriftMessage, err error) {
	request, err := json.Marshal(m)
	if err != nil {
		return got, err
	}
	response, err := c.GenericCall(ctx, "Call", string(request), options...)
	if err != nil {
		return got, err
	}
	return got, json.Unmarshal([]byte(response.(string)), &got)
}

// echo calls with a body of its own, and expects it back.
func (c thriftClient) echo(ctx context.Context, id string, size int) error {
	body := randomBytes(size)
	got, err := c.call(ctx, thriftMessage{ID: id, Body: body})
	if err == nil && (string(got.Body) != string(body) || got.ID != id) {
		err = fmt.Errorf("another message comes back: %d bytes of %d, id %q of %q", len(got.Body), size, got.ID, id)
	}
	return err
}

// chat sends messages on a stream over TTHeader, each once the one before has come back.
func (c thriftClient) chat(ctx context.Context) error {
	s, err := c.BidirectionalStreaming(ctx, "Chat")
	if err != nil {
		return err
	}
	ctx = s.Context() // with what Kitex needs to know of the call
	for i := range 50 {
		body := base64.StdEncoding.EncodeToString(randomBytes(i * 1000))
		if err := s.Send(ctx, fmt.Sprintf(`{"id": "%d", "body": %q, "wish": ""}`, i, body)); err != nil {
			return err
		}
		back, err := s.Recv(ctx)
		if err != nil {
			return err
		}
		if text := back.(string); !strings.Contains(text, body) {
			return fmt.Errorf("message %d comes back as %.100q", i, text)
		}
	}
	if err := s.CloseSend(ctx); err != nil {
		return err
	}
	if _, err := s.Recv(ctx); err != io.EOF {
		return fmt.Errorf("the stream ends with %v", err)
	}
	return nil
}
