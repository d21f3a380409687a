package proxyproto

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/must"
)

// pipe returns both ends of a connection of a network.
func pipe(t *testing.T, network string) (client, server net.Conn) {
	t.Helper()
	at := "127.0.0.1:0"
	if network == "unix" {
		at = filepath.Join(t.TempDir(), "s")
	}
	ln := must.ListenOn(t, network, at)
	client = must.Dial(t, network, ln.Addr().String())
	server, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	_ = server.SetReadDeadline(time.Now().Add(time.Minute))
	return client, server
}

// TestRead reads each header from a socket, also byte by byte, and leaves what follows.
func TestRead(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		for _, c := range headers {
			for _, step := range []int{len(c.text) + 1, 1, 100} {
				client, server := pipe(t, network)
				go func() {
					text := c.text + "!"
					for len(text) > 0 {
						n, _ := client.Write([]byte(text[:min(step, len(text))]))
						text = text[n:]
					}
					client.Close()
				}()
				h, err := Read(server)
				if h != c.want || err != nil {
					t.Fatalf("%s, %s: %+v, %v", network, c.name, h, err)
				}
				if rest, err := io.ReadAll(server); string(rest) != "!" || err != nil {
					t.Fatalf("%s, %s: %q and %v follow", network, c.name, rest, err)
				}
			}
		}
	}
}

// TestReadFailures: a peer that closes, resets, stays silent or sends something else.
func TestReadFailures(t *testing.T) {
	for _, c := range []struct {
		sent  string
		close bool
		want  error
	}{
		{"", true, io.EOF},
		{"P", true, io.ErrUnexpectedEOF},
		{"PROXY ", true, io.ErrUnexpectedEOF},
		{"", true, syscall.ECONNRESET},
		{"PROXY ", true, syscall.ECONNRESET},
		{"", false, os.ErrDeadlineExceeded},
		{"PROXY ", false, os.ErrDeadlineExceeded},
		{"GET / HTTP/1.1\r\n\r\n", false, ErrMalformed},
	} {
		client, server := pipe(t, "tcp")
		must.Write(t, client, c.sent)
		if c.want == syscall.ECONNRESET {
			_ = client.(*net.TCPConn).SetLinger(0)
		}
		if c.close {
			client.Close()
		} else if c.want != ErrMalformed {
			_ = server.SetReadDeadline(time.Now().Add(time.Millisecond))
		}
		if _, err := Read(server); !errors.Is(err, c.want) {
			t.Errorf("%q: %v, want %v", c.sent, err, c.want)
		}
	}
	client, server := net.Pipe()
	defer client.Close()
	if _, err := Read(server); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a connection without a socket: %v", err)
	}
}
