package http

import (
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// host is what the sessions of a loop share. Most of them wait for a request, so what only a
// request needs comes from free lists.
type host struct {
	*downstream.Host
	incoming shard.FreeList[*incoming]
	calls    shard.FreeList[[]call] // arrays without a call
}

// incoming is what a session needs while it receives a request, and while a request waits to
// leave the loop. Then head and body are those of that request.
type incoming struct {
	session *session // nil in the free list
	head    http1.Head
	body    http1.Body
	kind    stats.StreamKind // of the request that waits to leave
	timeout loop.Timeout     // of the head and the body
}

func (h *host) newIncoming() *incoming {
	in, ok := h.incoming.Take()
	if !ok {
		in = new(incoming)
		in.timeout.Init(h.Loop, func(k loop.TimeoutKind) { in.session.onTimeout(k) })
	}
	return in
}
