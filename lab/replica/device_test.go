package replica

import (
	"context"
	"net"
	"net/http"
	"testing"
)

// TestListenOnDevice checks that a replica on the device lo has all addresses of loopback.
func TestListenOnDevice(t *testing.T) {
	r, err := Start(Options{Mode: Fast, Listen: "0.0.0.0:0", Device: "lo"})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close(context.Background())
	_, port, err := net.SplitHostPort(r.Addr())
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: testTimeout}
	for _, host := range []string{"127.0.0.1", "127.0.3.232"} {
		resp, err := client.Get("http://" + net.JoinHostPort(host, port) + "/healthz")
		if err != nil {
			t.Error(err)
			continue
		}
		resp.Body.Close()
	}
}

func TestListenOnMissingDevice(t *testing.T) {
	if r, err := Start(Options{Mode: Fast, Device: "no-such-device"}); err == nil {
		r.Close(context.Background())
		t.Error("listens on a device that is not there")
	}
}
