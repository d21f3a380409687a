package proxy_test

import (
	"bytes"
	"testing"
	"time"

	xhttp2 "golang.org/x/net/http2"

	"github.com/remora-proxy/remora/protocol/http2"
	"github.com/remora-proxy/remora/proxy/mux"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// TestStreamWindow checks that a client of HTTP/2 may send mux.StreamWindow on each stream in one round trip.
func TestStreamWindow(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true})
	p := &proxytest.Peer{Says: []byte(http2.Preface)}
	m.Clients.Do(func() { m.Clients.Dial(proxytest.Egress, time.Second, p) })
	m.RunUntil("SETTINGS", func() bool { return len(p.Heard) > 0 })
	first, err := xhttp2.NewFramer(nil, bytes.NewReader(p.Heard)).ReadFrame()
	settings, ok := first.(*xhttp2.SettingsFrame)
	if err != nil || !ok {
		t.Fatalf("%v, %v", first, err)
	}
	if window, _ := settings.Value(xhttp2.SettingInitialWindowSize); window != mux.StreamWindow {
		t.Errorf("a stream has a window of %d, want %d", window, mux.StreamWindow)
	}
}
