package restart

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
)

// nextRelease starts a relay between two sidecars. To each, the other seems to be of the
// next release: the dialer also offers version 2, and both have settings that version 1
// does not know. It returns the address to dial, and a channel that gets a value for each
// link after both prefaces.
func nextRelease(t *testing.T, to string) (addr string, passed <-chan struct{}) {
	both := make(chan struct{}, 64)
	forward := func(dst, src net.Conn, highest byte, done chan<- struct{}) {
		defer dst.Close()
		if futurePreface(dst, src, highest) == nil && done != nil {
			done <- struct{}{}
		}
		_, _ = io.Copy(dst, src)
	}
	return harness.ServeTCP(t, func(down net.Conn) {
		up, err := net.Dial("tcp", to)
		if err != nil {
			return
		}
		go forward(up, down, 2, nil)
		forward(down, up, 1, both)
	}), both
}

// futurePreface copies a preface: magic (4), role, lowest version, highest
// version, length of the settings, settings.
func futurePreface(dst io.Writer, src io.Reader, highest byte) error {
	head := make([]byte, 8)
	if _, err := io.ReadFull(src, head); err != nil {
		return err
	}
	settings := make([]byte, head[7])
	if _, err := io.ReadFull(src, settings); err != nil {
		return err
	}
	head[6] = highest
	head[7] += 3
	_, err := dst.Write(append(append(head, settings...), 1, 2, 3))
	return err
}

// TestNeighbouringVersions: a sidecar of this release works in both directions with one of
// the next release, which still supports this one's version.
func TestNeighbouringVersions(t *testing.T) {
	p, ingress := harness.Provider(t, harness.NewApp(t))
	between, passed := nextRelease(t, ingress)
	egress := harness.FreeAddrs(t, 1)[0]
	c := harness.Start(t, fmt.Sprintf(`
loops: 1
listeners: [{name: egress, address: %q, protocol: http}]
routes: [{service: compute}]
services: {compute: {discover: static, endpoints: [%q], protocol: link, connect_timeout: 15s, timeout: 2m}}`, egress, between))
	p.Ready()
	c.Ready()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for i := range 20 {
		if err := harness.Post(client, egress, fmt.Sprint("request ", i)); err != nil {
			t.Fatal(err)
		}
	}
	harness.Receive(t, "a link between the two", passed)
}
