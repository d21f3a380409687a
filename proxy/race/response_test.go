package race

import (
	"testing"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/shard"
)

// TestBorrowedMarks: the fields of a borrowed response are never indexed if the filter says so, and no longer once the
// response is used again.
func TestBorrowedMarks(t *testing.T) {
	p := &Responses{Shard: new(shard.Shard)}
	p.Shard.Buffers.Ahead = 1 << 20 // so that no loop is needed
	for _, marked := range []bool{true, false} {
		res := p.New()
		res.Borrow(200, []byte("A: b\r\nContent-Length: 0\r\n"), nil, nil, marked)
		res.Own()
		if len(res.Headers) != 1 || res.Headers[0].NeverIndexed != marked || protocol.Find(res.Headers, "a") == nil {
			t.Errorf("marked %t: %v", marked, res.Headers)
		}
		res.Release()
	}
}
