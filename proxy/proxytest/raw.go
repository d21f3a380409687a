package proxytest

import (
	"bytes"
	"fmt"
	"strings"
	"time"
)

// Raw returns a call of literal bytes, with the call's nonce in the place of NONCE.
func (m *Mesh) Raw(text string) *Call {
	c := m.Get("/")
	c.Raw = []byte(strings.ReplaceAll(text, "NONCE", c.Nonce))
	return c
}

// CheckRefused checks that c got an error response of the sidecar, after which the
// connection closes.
func (m *Mesh) CheckRefused(c *Call, cl *Client, status int, code string) {
	m.T.Helper()
	if c.Status != status || c.Code != code {
		m.T.Errorf("status %d %s (%v), want %d %s", c.Status, c.Code, c.Err, status, code)
	}
	if !m.W.RunUntil(func() bool { return cl.Ended }, 5*time.Second) {
		m.T.Error("the connection stays open")
	}
}

// Padded returns a raw call of n bytes. PAD in the text becomes padding.
func (m *Mesh) Padded(n int, text string) *Call {
	c := m.Raw(text)
	pad := bytes.Repeat([]byte{'p'}, n-len(c.Raw)+len("PAD"))
	c.Raw = bytes.Replace(c.Raw, []byte("PAD"), pad, 1)
	return c
}

// Chunked returns a POST of n bytes in chunks of up to 64 KiB.
func (m *Mesh) Chunked(n int) *Call {
	c := m.Raw("POST / HTTP/1.1\r\nHost: a\r\nx-nonce: NONCE\r\nTransfer-Encoding: chunked\r\n\r\n")
	for n > 0 {
		k := min(n, 64<<10)
		c.Raw = fmt.Appendf(c.Raw, "%x\r\n%s\r\n", k, bytes.Repeat([]byte{'c'}, k))
		n -= k
	}
	c.Raw = append(c.Raw, "0\r\n\r\n"...)
	return c
}

// Incomplete returns a call with a body of size bytes, without the last byte.
func (m *Mesh) Incomplete(size int) *Call {
	return m.Raw(fmt.Sprintf("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s", size, strings.Repeat("x", size-1)))
}

// SendSlowly makes p, once it is connected, send text at one byte per second until the
// connection closes.
func (m *Mesh) SendSlowly(p *Peer, loop interface{ Post(func()) }, text string) {
	m.W.RunUntil(func() bool { return p.Conn != nil }, time.Second)
	for i := range len(text) {
		m.W.At(m.W.Now()+time.Duration(i)*time.Second, func() {
			loop.Post(func() {
				if !p.Ended {
					p.Conn.Write([]byte(text[i : i+1]))
				}
			})
		})
	}
}
