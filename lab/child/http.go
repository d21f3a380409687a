package child

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"time"
)

// client makes the few control requests, never the load. Its timeout is long enough for a busy machine.
var client = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// Call makes a request without a body, and returns the body of a 2xx response, up to 1 MiB.
func Call(ctx context.Context, method, url string) ([]byte, error) {
	return CallAs(ctx, "", method, url)
}

// CallAs is Call with a bearer token; "" means none.
func CallAs(ctx context.Context, token, method, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return nil, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode/100 != 2 {
		return nil, fmt.Errorf("%s %s: status %d", method, url, resp.StatusCode)
	}
	return body, nil
}

// Metric returns one series of a text of metrics, or the sum of all series of a name.
func Metric(text []byte, name string) (sum float64, err error) {
	series := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + `(?:\{.*\})? (\S+)$`)
	lines := series.FindAllSubmatch(text, -1)
	if lines == nil {
		return 0, fmt.Errorf("GET /metrics: no %s", name)
	}
	for _, line := range lines {
		v, err := strconv.ParseFloat(string(line[1]), 64)
		if err != nil {
			return 0, err
		}
		sum += v
	}
	return sum, nil
}

// Gets returns a try for Await that succeeds if url responds with 2xx.
func Gets(url string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := Call(ctx, http.MethodGet, url)
		return err
	}
}
