package http_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// TestPipelinedWithSlowReader checks that pipelined requests wait for a client that reads slowly.
func TestPipelinedWithSlowReader(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1})
	m.Apps[0].Body = func(*protocol.Request) []byte { return bytes.Repeat([]byte{'y'}, 2<<20) }
	cl := m.Dial(proxytest.Egress)
	var all []byte
	for range 8 {
		c := m.Get("/")
		all = append(all, c.Raw...)
		c.Raw = nil
		cl.Calls = append(cl.Calls, c)
	}
	calls := cl.Calls
	calls[0].Raw = all
	m.W.Run(2 * time.Millisecond)
	m.W.Faults.PauseReading(cl.Conn, true)
	m.W.Run(10 * time.Second)
	m.W.Faults.PauseReading(cl.Conn, false)
	m.OK(calls...)
	m.Settled()
}
