package stream

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"testing"
)

// TestForgedErrorOfStream: an application can't say x-remora-error in the response to a stream,
// nor in an interim one. What the last sidecar says reaches the client through all others.
func TestForgedErrorOfStream(t *testing.T) {
	app := handle(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("X-Remora-Error", "forged")
		w.Header().Set("X-App", "kept")
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusOK)
	})
	test := func(t *testing.T, c *chain) {
		post := func() (resp *http.Response, interim int) {
			r, _ := http.NewRequest("POST", "http://"+c.addr+"/", bytes.NewReader(make([]byte, 2*longest)))
			trace := &httptrace.ClientTrace{Got1xxResponse: func(_ int, h textproto.MIMEHeader) error {
				interim++
				if h.Get("X-Remora-Error") != "" || h.Get("X-App") != "kept" {
					t.Errorf("interim response with %v", h)
				}
				return nil
			}}
			resp, err := c.client.Do(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			return resp, interim
		}
		resp, interim := post()
		if got := resp.Header.Get("X-Remora-Error"); got != "" || resp.StatusCode != 200 || resp.Header.Get("X-App") != "kept" || interim != 1 {
			t.Errorf("status %d, %d interim, %v", resp.StatusCode, interim, resp.Header)
		}
		c.nodes[len(c.nodes)-1].update()
		resp, _ = post()
		wantError(t, "without an endpoint", resp, 503, "no-endpoint")
	}
	linked(t, chainOptions{}, test, app)
	linked(t, chainOptions{sidecars: 3}, test, app)
}
