package shard

import (
	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
)

// Memory is the text of several responses. It counts once for the process, and each of its users
// holds an equal part. Nobody changes the text. It is released with its last user.
type Memory struct {
	shard   *Shard
	buffers [2]*bytebufferpool.ByteBuffer // may be nil
	users   int
	counted int    // bytes that the budget knows of
	onFree  func() // nil means nothing
}

// Share makes buffers, each of which may be nil, the memory of m, which has one user then. onFree, if
// set, is called when the last user has gone.
func (m *Memory) Share(s *Shard, onFree func(), buffers ...*bytebufferpool.ByteBuffer) {
	*m = Memory{shard: s, users: 1, onFree: onFree}
	n := 0
	for i, b := range buffers {
		m.buffers[i] = b
		n += protocol.Held(b)
	}
	s.Recount(&m.counted, n)
}

// Use adds a user, which calls Release later.
func (m *Memory) Use() *Memory {
	m.users++
	return m
}

// Release removes a user.
func (m *Memory) Release() {
	if m.users--; m.users > 0 {
		return
	}
	for i := range m.buffers {
		m.shard.Buffers.Release(&m.buffers[i])
	}
	m.shard.Recount(&m.counted, 0)
	if m.onFree != nil {
		m.onFree()
	}
}

// Part returns the bytes that each user holds.
func (m *Memory) Part() int { return m.counted / m.users }
