package proxytest

import (
	"strings"
	"time"
)

// Raw returns a call of literal bytes, with the call's nonce in the place of NONCE.
func (m *Mesh) Raw(text string) *Call {
	c := m.Get("/")
	c.Raw = []byte(strings.ReplaceAll(text, "NONCE", c.Nonce))
	return c
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
