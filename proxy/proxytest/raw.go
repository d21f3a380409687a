package proxytest

import (
	"bytes"
	"fmt"
	"strings"
	"time"
)

// Raw makes a call of literal bytes; the answer carries no nonce of its own.
func (m *Mesh) Raw(text string) *Call {
	c := m.Get("/")
	c.Raw = []byte(strings.ReplaceAll(text, "NONCE", c.Nonce))
	return c
}

// Refused checks for an answer of the sidecar's own, after which the connection
// closes.
func (m *Mesh) Refused(c *Call, cl *Client, status int, code string) {
	m.T.Helper()
	if c.Status != status || c.Code != code {
		m.T.Errorf("status %d %s (%v), want %d %s", c.Status, c.Code, c.Err, status, code)
	}
	if !m.W.RunUntil(func() bool { return cl.Ended }, 5*time.Second) {
		m.T.Error("the connection stays open")
	}
}

// Padded is a raw call of n bytes, which PAD in the text is filled up to.
func (m *Mesh) Padded(n int, text string) *Call {
	c := m.Raw(text)
	pad := bytes.Repeat([]byte{'p'}, n-len(c.Raw)+len("PAD"))
	c.Raw = bytes.Replace(c.Raw, []byte("PAD"), pad, 1)
	return c
}

// Chunked is a POST of n bytes in chunks of up to 64 KiB.
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

// Half makes a call of which the last byte of size never comes.
func (m *Mesh) Half(size int) *Call {
	return m.Raw(fmt.Sprintf("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s", size, strings.Repeat("x", size-1)))
}

// Drip has p, once it is connected, say text a byte a second, as long as anybody
// listens.
func (m *Mesh) Drip(p *Peer, loop interface{ Post(func()) }, text string) {
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
