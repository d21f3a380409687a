package streams

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/freeport"
)

// TestServe calls the server as gRPC does: a message of the size that was asked for, and a status behind it.
func TestServe(t *testing.T) {
	addrs, release, err := freeport.Loopback(1)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, addrs[0]) }()

	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: time.Minute}
	for _, c := range []struct{ size, status string }{
		{"0", "0"}, {"200", "0"}, {"1000000", "0"}, {"-1", "3"}, {"x", "3"}, {fmt.Sprint(MaxSize + 1), "3"},
	} {
		url := "http://" + addrs[0] + "/bytes?size=" + c.size
		var resp *http.Response
		eventually.True(t, "a response", func() (responds bool) {
			select {
			case err := <-ended:
				t.Fatal(err)
			default:
			}
			resp, err = client.Post(url, "application/grpc", strings.NewReader(strings.Repeat("x", 300_000)))
			return err == nil
		})
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		want := c.size
		if c.status != "0" {
			want = "0"
		}
		if got := fmt.Sprint(len(body) - 5); err != nil || got != want || resp.Trailer.Get("grpc-status") != c.status {
			t.Errorf("%s: %s bytes, status %q, %v", c.size, got, resp.Trailer.Get("grpc-status"), err)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := Serve(t.Context(), "127.0.0.1:nowhere"); err == nil {
		t.Error("an address with an unknown port was taken")
	}
}
