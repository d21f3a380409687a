//go:build linux

package intercept

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"sync/atomic"
	"testing"
	"time"
)

// Ports of the servers in the far namespace.
const (
	original = 8080 // HTTP, "original": the address of the service's name
	other    = 8081 // HTTP, the head of the request
	lines    = 7001 // see serveLines
	greeter  = 7002 // see serveGreeter

	recording = 7003 // see recorder
)

// replicas are the ports of a service: HTTP, "replica PORT".
var replicas = [...]int{9001, 9002, 9003}

const (
	freezeEach = 3                      // each replica freezes on every third request, so that each run has hedges
	freeze     = 300 * time.Millisecond // many times the delay of a hedge
)

// requests counts those of HTTP so far, by the port of the server.
type requests map[int]*atomic.Int64

// serve starts the servers in a namespace, until the end of the test.
func serve(t *testing.T, where space) requests {
	t.Helper()
	counts := requests{}
	handle := func(port int, body func(r *http.Request, n int64) []byte) {
		counts[port] = new(atomic.Int64)
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = w.Write(body(r, counts[port].Add(1)))
		})}
		t.Cleanup(func() { server.Close() })
		for _, l := range listen(t, where, port) {
			go server.Serve(l)
		}
	}
	for _, port := range replicas {
		handle(port, func(_ *http.Request, n int64) []byte {
			if n%freezeEach == 0 {
				time.Sleep(freeze)
			}
			return fmt.Appendf(nil, "replica %d", port)
		})
	}
	handle(original, func(*http.Request, int64) []byte { return []byte("original") })
	handle(other, func(r *http.Request, _ int64) []byte {
		head, err := httputil.DumpRequest(r, false)
		if err != nil {
			return []byte(err.Error())
		}
		return head
	})
	for port, serveConn := range map[int]func(io.ReadWriter){lines: serveLines, greeter: serveGreeter} {
		for _, l := range listen(t, where, port) {
			go func() {
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					go func() {
						defer c.Close()
						serveConn(c)
					}()
				}
			}()
		}
	}
	return counts
}

// listen returns listeners on a port of a namespace, for IPv4 and IPv6, until the end of
// the test. One for both would be without IPv6 if the namespace of this process is.
func listen(t *testing.T, where space, port int) (found []net.Listener) {
	t.Helper()
	err := where.inside(func() error {
		var failures error
		for _, network := range []string{"tcp4", "tcp6"} {
			l, err := net.Listen(network, fmt.Sprintf(":%d", port))
			if failures = errors.Join(failures, err); err == nil {
				t.Cleanup(func() { l.Close() })
				found = append(found, l)
			}
		}
		return failures
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// serveLines responds with "+LINE" to each line, and at the end of the input with the
// count of its bytes.
func serveLines(c io.ReadWriter) {
	n, in := 0, bufio.NewReader(c)
	for {
		line, err := in.ReadString('\n')
		n += len(line)
		if err != nil {
			fmt.Fprintf(c, ":%d\r\n", n)
			return
		}
		fmt.Fprintf(c, "+%s", line)
	}
}

// serveGreeter speaks first: "220 ready", and then "250 LINE" for each line.
func serveGreeter(c io.ReadWriter) {
	fmt.Fprint(c, "220 ready\r\n")
	for in := bufio.NewReader(c); ; {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		fmt.Fprintf(c, "250 %s", line)
	}
}
