//go:build linux

package intercept

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/eventually"
)

// guardConfig is of a second sidecar, one of whose hosts has rules.
const guardConfig = `
node: {id: guard}
loops: 1
log: {level: warn, format: text}
admin: {address: "127.0.0.1:9902"}
timeouts: {detect: 2s, header: 5s}
listeners:
- {name: guard4, address: "127.0.0.1:15002", protocol: http, transparent: true}
- {name: guard6, address: "[::1]:15002", protocol: http, transparent: true}
routes:
- {match: {host: guarded.test}, service: guarded, allow: {rules: [{method: [GET], path: [/open]}]}}
services:
  guarded: {discover: static, endpoints: ["` + far4 + `:9001"], protocol: http, connect_timeout: 15s, timeout: 60s}
`

// recorder is a lenient server: it takes all bytes, and answers nothing.
type recorder struct {
	mu    sync.Mutex
	seen  []byte
	conns int
}

// record starts a recorder in a namespace, until the end of the test.
func record(t *testing.T, where space, port int) *recorder {
	t.Helper()
	r := &recorder{}
	for _, ln := range listen(t, where, port) {
		go func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				r.mu.Lock()
				r.conns++
				r.mu.Unlock()
				go func() {
					defer c.Close()
					_, _ = io.Copy(r, c)
				}()
			}
		}()
	}
	return r
}

// Write keeps what a client has sent.
func (r *recorder) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, b...)
	return len(b), nil
}

func (r *recorder) saw(text string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return bytes.Contains(r.seen, []byte(text))
}

func (r *recorder) accepted() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.conns
}

// dial connects from the near namespace, to be redirected.
func (l lab) dial(address string) net.Conn {
	l.Helper()
	var c net.Conn
	err := l.near.inside(func() (err error) {
		c, err = net.DialTimeout("tcp", address, patience)
		return err
	})
	if err != nil {
		l.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(patience))
	return c
}

// guardRows are first bytes of connections. Each has /secret once, which becomes the row's own path.
var guardRows = []struct{ name, sent, want string }{
	{"a request that a rule allows", "GET /open HTTP/1.1\r\nHost: guarded.test\r\nX: /secret\r\n\r\n", "200"},
	{"a request that no rule allows", "GET /secret HTTP/1.1\r\nHost: guarded.test\r\n\r\n", "403"},
	{"another spelling of the host", "GET /secret HTTP/1.1\r\nHost: GUARDED.test.:80\r\n\r\n", "403"},
	{"the host in the target", "GET http://guarded.test/secret HTTP/1.1\r\nHost: guarded.test\r\n\r\n", "403"},
	{"an empty line first", "\r\nGET /secret HTTP/1.1\r\nHost: guarded.test\r\n\r\n", "403"},
	{"two empty lines first", "\r\n\r\nGET /secret HTTP/1.1\r\nHost: guarded.test\r\n\r\n", "400"},
	{"bare LF", "GET /secret HTTP/1.1\nHost: guarded.test\n\n", "400"},
	{"VT", "GET\v/secret\vHTTP/1.1\r\nHost: guarded.test\r\n\r\n", "400"},
	{"FF", "GET\f/secret\fHTTP/1.1\r\nHost: guarded.test\r\n\r\n", "400"},
	{"bare CR for spaces", "GET\r/secret\rHTTP/1.1\r\nHost: guarded.test\r\n\r\n", "400"},
	{"bare CR for line ends", "GET /secret HTTP/1.1\rHost: guarded.test\r\r\r\n\r\n", "400"},
	{"tabs", "GET\t/secret\tHTTP/1.1\r\nHost: guarded.test\r\n\r\n", "400"},
	{"two spaces", "GET  /secret  HTTP/1.1\r\nHost: guarded.test\r\n\r\n", "400"},
	{"a space first", " GET /secret HTTP/1.1\r\nHost: guarded.test\r\n\r\n", "400"},
	{"VT in an unknown method", "FETCH\v/secret\vHTTP/1.1\r\nHost: guarded.test\r\n\r\n", "400"},
	{"a method in small letters", "get /secret HTTP/1.1\r\nHost: guarded.test\r\n\r\n", "403"},
	{"no version", "GET /secret\r\n\r\n", "400"},
	{"an old version", "GET /secret HTTP/1.0\r\nHost: guarded.test\r\n\r\n", "403"},
	{"two hosts", "GET /secret HTTP/1.1\r\nHost: other.test\r\nHost: guarded.test\r\n\r\n", "400"},
	{"a space before the colon", "GET /secret HTTP/1.1\r\nHost : guarded.test\r\n\r\n", "400"},
	{"a request in a tunnel", "CONNECT guarded.test:80 HTTP/1.1\r\nHost: guarded.test:80\r\n\r\nGET /secret HTTP/1.1\r\nHost: guarded.test\r\n\r\n", "403"},
	{"VT in a tunnel", "CONNECT guarded.test:80 HTTP/1.1\r\nHost: guarded.test:80\r\n\r\nGET\v/secret\vHTTP/1.1\r\nHost: guarded.test\r\n\r\n", "400"},
	{"a tunnel elsewhere", "CONNECT other.test:80 HTTP/1.1\r\nHost: other.test:80\r\n\r\nGET /secret HTTP/1.1\r\nHost: guarded.test\r\n\r\n", "404"},
	{"a slow head", "GET /secret HTTP/1.1\r\nHost: guarded.test\r\n", "408"},
}

// guard checks that no request to a host with rules reaches its destination unread. What is no HTTP passes, and so
// does TLS, which nobody can read here.
func guard(l lab) {
	file := filepath.Join(*dir, "guard.yaml")
	l.write(file, guardConfig)
	l.launch("guard", l.near, func() bool {
		return l.try(l.near, "curl", "--silent", "--fail", "http://127.0.0.1:9902/readyz").code == 0
	},
		"setpriv", "--reuid", proxyUID, "--regid", proxyUID, "--clear-groups", "--pdeathsig", "KILL",
		filepath.Join(*dir, "bin", "remora"), "run", "-c", file)
	l.intercept("install", "--proxy-uid", proxyUID, "--port", "15002")
	destination := record(l.T, l.far, recording)
	for prefix, far := range map[string]string{"IPv4: ": far4, "IPv6: ": far6} {
		address := net.JoinHostPort(far, strconv.Itoa(recording))
		for i, row := range guardRows {
			c, path := l.dial(address), fmt.Sprintf("/%s%d", prefix[:4], i)
			_, sent := io.WriteString(c, strings.ReplaceAll(row.sent, "/secret", path))
			statuses, err := readUntil(c, "HTTP/1.1 "+row.want)
			c.Close()
			l.check(prefix+row.name, sent == nil && err == nil && !destination.saw(path), statuses, err)
		}
		l.lateGuarded(prefix, address, destination)
		l.passesGuarded(prefix+"what is no HTTP passes", "\x00\x01"+prefix, address, destination)
		l.passesGuarded(prefix+"TLS passes", "\x16\x03\x01\x00\x10"+prefix, address, destination)
	}
}

// readUntil reads up to a text, and returns the responses so far.
func readUntil(c net.Conn, text string) (all string, err error) {
	for b := make([]byte, 1); err == nil && !strings.HasSuffix(all, text); all += string(b) {
		_, err = io.ReadFull(c, b)
	}
	return all, err
}

// lateGuarded sends a request after the sidecar has connected a silent client to its destination.
func (l lab) lateGuarded(prefix, address string, destination *recorder) {
	l.Helper()
	before := destination.accepted()
	c, path := l.dial(address), "/late-"+prefix[:4]
	defer c.Close()
	eventually.True(l, "the silent connection to pass", func() bool { return destination.accepted() > before })
	_, _ = io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: guarded.test\r\n\r\n")
	_, err := c.Read(make([]byte, 1))
	l.check(prefix+"a late request resets the connection", errors.Is(err, syscall.ECONNRESET) && !destination.saw(path), err)
}

// passesGuarded sends what reaches the destination.
func (l lab) passesGuarded(name, text, address string, destination *recorder) {
	l.Helper()
	c := l.dial(address)
	defer c.Close()
	_, _ = io.WriteString(c, text)
	eventually.True(l, name, func() bool { return destination.saw(text) })
	l.check(name, true)
}
