package otlp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/remora-proxy/remora/proxy/config"
)

const (
	// firstPause and longestPause bound the time between two tries of an export.
	// It doubles from try to try.
	firstPause   = 250 * time.Millisecond
	longestPause = 5 * time.Second

	// maxAnswer is how much of an answer is read.
	maxAnswer = 64 << 10
)

// receiver is where spans go.
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
	// HTTP/2 would go on using a connection whose other end is gone: what runs into
	// the timeout ends its stream alone. One export at a time has no need of streams.
	var version http.Protocols
	version.SetHTTP1(true)
	r.client = http.Client{
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, MaxIdleConns: 1, IdleConnTimeout: time.Minute, Protocols: &version,
		},
		// Credentials among the headers go to nobody else.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return r
}

// retire closes idle connections. An export in progress goes on.
func (r *receiver) retire() { r.client.CloseIdleConnections() }

// failure is an export that was not taken.
type failure struct {
	error
	again bool          // it may be tried again
	after time.Duration // not before; 0: the receiver does not say
}

// send sends an export, again if that may help and until the timeout has passed or
// closing is closed. It returns how many spans the receiver has taken note of but
// not accepted.
func (r *receiver) send(ctx context.Context, closing <-chan struct{}, body []byte) (rejected uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		rejected, err = r.try(ctx, body)
		var f *failure
		if !errors.As(err, &f) || !f.again {
			return rejected, err
		}
		wait := time.NewTimer(max(f.after, pause/2+rand.N(pause/2)))
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return 0, err
		case <-closing:
			wait.Stop()
			return 0, err
		}
	}
}

// try sends an export once. Every error is a *failure.
func (r *receiver) try(ctx context.Context, body []byte) (rejected uint64, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url, bytes.NewReader(body))
	if err != nil {
		return 0, &failure{error: err}
	}
	req.Header = r.header.Clone()
	resp, err := r.client.Do(req)
	if err != nil {
		return 0, &failure{error: err, again: true}
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if resp.StatusCode/100 == 2 {
		return rejectedSpans(answer), nil // even if its end got lost: the spans are there
	}
	f := &failure{error: fmt.Errorf("%s answered %s", r.url, resp.Status)}
	switch resp.StatusCode { // OTLP 1.x, "Retryable Response Codes"
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		f.again = true
	}
	if seconds, bad := strconv.ParseUint(resp.Header.Get("Retry-After"), 10, 16); bad == nil {
		f.after = time.Duration(seconds) * time.Second
	}
	return 0, f
}

// rejectedSpans reads ExportTraceServiceResponse.partial_success.rejected_spans. The
// message comes with a gRPC service, which nothing else here needs, so it is read by
// its numbers.
func rejectedSpans(answer []byte) uint64 {
	partialSuccess, _ := protowire.ConsumeBytes(field(answer, 1, protowire.BytesType))
	rejected, _ := protowire.ConsumeVarint(field(partialSuccess, 1, protowire.VarintType))
	return rejected
}

// field is a message from the first value of a field on, nil if it has none.
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
