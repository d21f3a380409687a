package reactor

import (
	"crypto/tls"
	"io"
	"net"
	"testing"

	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/proxy/loop"
)

// BenchmarkTLS measures a message of 300 bytes and its echo, one at a time: without TLS,
// with TLS on the loop, and with TLS on two goroutines per connection, which is the
// alternative of docs/decisions/0005-tls.md.
func BenchmarkTLS(b *testing.B) {
	own := NewIdentity(b)
	own.Close() // its watch is not measured
	round := func(b *testing.B, c net.Conn) {
		message, got := make([]byte, 300), make([]byte, 300)
		for b.Loop() {
			if _, err := c.Write(message); err != nil {
				b.Fatal(err)
			}
			if _, err := io.ReadFull(c, got); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.Run("off", func(b *testing.B) {
		round(b, unbounded(b, listen(b, start(b, Options{}), ListenOptions{}, echo)))
	})
	b.Run("loop", func(b *testing.B) {
		addr := listen(b, start(b, Options{}), ListenOptions{TLS: own.Server}, echo)
		round(b, tls.Client(unbounded(b, addr), own.Client()))
	})
	b.Run("goroutines", func(b *testing.B) {
		addr := bridge(b, start(b, Options{}).Loops()[0], own.Server())
		round(b, tls.Client(unbounded(b, addr), own.Client()))
	})
}

// unbounded returns a connection without a deadline.
func unbounded(b *testing.B, addr string) net.Conn {
	c := must.Dial(b, "tcp", addr)
	return c
}

// bridge accepts one TLS connection and passes its plain text through l.
func bridge(b *testing.B, l loop.Loop, config *tls.Config) (addr string) {
	ln := must.Listen(b)
	go func() {
		raw, err := ln.Accept()
		if err != nil {
			return
		}
		c := tls.Server(raw, config)
		out := make(chan []byte, 64)
		go func() {
			for p := range out {
				_, _ = c.Write(p)
			}
		}()
		defer close(out)
		defer raw.Close()
		// Two buffers suffice, because one message is in flight at a time.
		for bufs, i := [2][]byte{make([]byte, 4096), make([]byte, 4096)}, 0; ; i ^= 1 {
			n, err := c.Read(bufs[i])
			if err != nil {
				return
			}
			handed := make(chan struct{})
			l.Post(func() { out <- bufs[i][:n]; close(handed) })
			<-handed
		}
	}()
	b.Cleanup(func() { ln.Close() })
	return ln.Addr().String()
}
