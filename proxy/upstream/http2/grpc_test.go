package http2_test

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http2"
	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/proxy/race"
)

// TestLongGRPCMessage: the response to a gRPC call whose first message is too long for a message, by its prefix, is a stream from its
// first bytes on. A shorter response waits for the rest, which may come soon.
func TestLongGRPCMessage(t *testing.T) {
	const fits = 64<<10 - 5 // in SmallMessages, with the prefix
	for length, want := range map[int]int{fits: 0, fits + 1: 1} {
		m, consumer, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Speaks: "http2", Match: messages, Limits: proxytest.SmallMessages})
		startApps(m)[0].onCall = func(c *proxytest.HTTP2Conn, st *http2.Stream) {
			c.H2.ResponseHead(st, &protocol.Response{Status: 200, DeclaredLength: -1, Headers: []protocol.Header{field("content-type", "application/grpc")}})
			c.H2.Send(st, append(binary.BigEndian.AppendUint32([]byte{0}, uint32(length)), "first bytes"...))
			c.Flush()
		}
		m.Do(m.Get("/"))
		if m.W.Run(race.GRPCStreamAfter - time.Millisecond); len(consumer.Responses) != want {
			t.Errorf("%d bytes: %d streams", length, len(consumer.Responses))
		}
		m.RunUntil("a stream, since the rest does not come", func() bool { return len(consumer.Responses) == 1 })
		proxytest.CheckStreamsSettled(m, consumer)
	}
}
