package reactor

import (
	"crypto/tls"
	"errors"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/loop"
)

// TestDialOther: if the address of an endpoint refuses, a dial connects to the other address of its host, on a loop and
// without one, with TLS and without.
func TestDialOther(t *testing.T) {
	own := NewIdentity(t)
	for name, server := range map[string]func() *tls.Config{"plain": nil, "TLS": own.Server} {
		t.Run(name, func(t *testing.T) {
			refusing := refusingAddr(t)
			var other, service string
			o := Options{DialOther: func(key, addr string) string {
				if addr != refusing || key != service {
					t.Errorf("asked for the other address of %s, of the service %q, not %q", addr, key, service)
				}
				return other
			}}
			if server != nil {
				o = withTLS(o, own)
			}
			e := start(t, o)
			dial := func() (string, error) {
				service = ""
				got, ended := make(chan string, 1), make(chan error, 1)
				e.loops[0].Post(func() {
					e.loops[0].Dial(refusing, waitLimit, &stream{
						open: func(c loop.Conn) { c.Write([]byte("hello")) }, data: func(b []byte) { got <- string(b) }, close: func(err error) { ended <- err },
					})
				})
				select {
				case text := <-got:
					return text, nil
				case err := <-ended:
					return "", err
				case <-time.After(waitLimit):
					return "", errors.New("nothing came")
				}
			}
			dialSocket := func() (loop.Socket, error) {
				service = "key"
				return e.SocketDialer().Dial(t.Context(), refusing, service, "", nil)
			}
			if _, err := dial(); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("without another address: %v", err)
			}
			if _, err := dialSocket(); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("without another address and a loop: %v", err)
			}
			other = listen(t, e, ListenOptions{TLS: server}, echo)
			if got, err := dial(); got != "hello" || err != nil {
				t.Errorf("got %q, %v", got, err)
			}
			sock, err := dialSocket()
			if err != nil {
				t.Fatal(err)
			}
			defer sock.Close()
			_ = sock.SetDeadline(time.Now().Add(waitLimit))
			if got := ask(t, sock.(net.Conn), "hello"); got != "hello" {
				t.Errorf("without a loop: %q", got)
			}
		})
	}
}
