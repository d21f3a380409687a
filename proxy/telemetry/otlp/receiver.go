package otlp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/remora-proxy/remora/internal/backoff"
	"github.com/remora-proxy/remora/proxy/config"
)

const (
	// firstPause and longestPause are the pauses between tries of an export, see package backoff.
	firstPause   = 250 * time.Millisecond
	longestPause = 5 * time.Second

	maxResponse = 64 << 10 // bytes of a response that are read
)

// receiver sends exports to one configured endpoint.
type receiver struct {
	url     string
	service string
	header  http.Header
	timeout time.Duration
	client  http.Client
}

func newReceiver(c *config.Tracing) *receiver {
	r := &receiver{
		url: strings.TrimSuffix(c.Endpoint, "/") + "/v1/traces", service: c.ServiceName,
		header: http.Header{}, timeout: c.Timeout,
	}
	for name, value := range c.Headers {
		r.header.Set(name, value)
	}
	r.header.Set("Content-Type", "application/x-protobuf")
	// HTTP/2 would keep using a connection whose other end has gone: a timeout ends
	// only the stream. There is one export at a time, which needs no streams.
	var version http.Protocols
	version.SetHTTP1(true)
	r.client = http.Client{
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, MaxIdleConns: 1, IdleConnTimeout: time.Minute, Protocols: &version,
		},
		// A redirect would send the credentials in the headers elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return r
}

// retire closes idle connections. An export in progress goes on.
func (r *receiver) retire() { r.client.CloseIdleConnections() }

// failure is the error of an export that was not accepted.
type failure struct {
	error
	retryable bool
	after     time.Duration // shortest pause before a retry; 0 if the receiver names none
}

// send sends an export, with retries where they may help, until the timeout has passed or
// closing is closed. It returns how many spans of an accepted export the receiver has rejected.
func (r *receiver) send(ctx context.Context, closing <-chan struct{}, body []byte) (rejected uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	for pauses := (backoff.Backoff{Min: firstPause, Max: longestPause}); ; {
		rejected, err = r.try(ctx, body)
		var f *failure
		if !errors.As(err, &f) || !f.retryable {
			return rejected, err
		}
		select {
		case <-time.After(max(f.after, pauses.Next())):
		case <-ctx.Done():
			return 0, err
		case <-closing:
			return 0, err
		}
	}
}

// try sends an export once. Each error is a *failure.
func (r *receiver) try(ctx context.Context, body []byte) (rejected uint64, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url, bytes.NewReader(body))
	if err != nil {
		return 0, &failure{error: err}
	}
	req.Header = r.header.Clone()
	resp, err := r.client.Do(req)
	if err != nil {
		return 0, &failure{error: err, retryable: true}
	}
	defer resp.Body.Close()
	response, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse))
	if resp.StatusCode/100 == 2 {
		return rejectedSpans(response), nil // even after a read error: the receiver has the spans
	}
	f := &failure{error: fmt.Errorf("%s responded %s", r.url, resp.Status)}
	switch resp.StatusCode { // OTLP 1.x, "Retryable Response Codes"
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		f.retryable = true
	}
	if seconds, bad := strconv.ParseUint(resp.Header.Get("Retry-After"), 10, 16); bad == nil {
		f.after = time.Duration(seconds) * time.Second
	}
	return 0, f
}

// rejectedSpans reads ExportTraceServiceResponse.partial_success.rejected_spans by field
// numbers. The package of the message would bring in gRPC, which is needed for nothing else.
func rejectedSpans(response []byte) uint64 {
	partialSuccess, _ := protowire.ConsumeBytes(field(response, 1, protowire.BytesType))
	rejected, _ := protowire.ConsumeVarint(field(partialSuccess, 1, protowire.VarintType))
	return rejected
}

// field returns the rest of a message from the first value of a field on, or nil.
func field(b []byte, number protowire.Number, kind protowire.Type) []byte {
	for len(b) > 0 {
		n, k, size := protowire.ConsumeTag(b)
		if size < 0 {
			return nil
		}
		b = b[size:]
		if n == number && k == kind {
			return b
		}
		if size = protowire.ConsumeFieldValue(n, k, b); size < 0 {
			return nil
		}
		b = b[size:]
	}
	return nil
}
