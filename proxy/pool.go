package proxy

import (
	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/protocol"
)

// pool is the exchanges and responses of one loop that are free to be used again.
type pool struct {
	w         *shard
	exchanges []*exchange
	answers   []*answer
}

// maxFree bounds the free lists; what is freed beyond it is left to the garbage
// collector.
const maxFree = 4096

func newPool(w *shard) *pool { return &pool{w: w} }

// exchange takes one from the free list.
func (p *pool) exchange(from replier) *exchange {
	n := len(p.exchanges)
	if n == 0 {
		ex := &exchange{w: p.w, pool: p, from: from}
		ex.deadline.Fire = ex.onDeadline
		ex.hedge.Fire = ex.onHedgeTimer
		for i := range ex.attempts {
			ex.attempts[i].ex = ex
		}
		return ex
	}
	ex := p.exchanges[n-1]
	p.exchanges[n-1] = nil
	p.exchanges = p.exchanges[:n-1]
	ex.from = from
	return ex
}

// recycle returns an exchange that never began.
func (p *pool) recycle(ex *exchange) {
	ex.releaseRequest()
	p.reuse(ex)
}

// reuse returns an exchange whose request memory is released and whose attempts are
// over.
func (p *pool) reuse(ex *exchange) {
	ex.from, ex.route, ex.svc, ex.bounds, ex.pass = nil, nil, nil, nil, passNone
	ex.tag, ex.retries, ex.free, ex.hedges, ex.missed = 0, 0, 0, 0, 0
	ex.lastFail, ex.reached = nil, false
	ex.requestID, ex.stopped, ex.unhedged, ex.marked = nil, nil, false, false
	if cap(ex.forwarded) > maxForwarded {
		ex.forwarded = nil
	}
	if cap(ex.path) > maxRewritten {
		ex.path = nil
	}
	if cap(ex.traceState.Text) > maxTraceState {
		ex.traceState.Text = nil
	}
	ex.failedAt[0], ex.bestOf = nil, nil
	ex.queued, ex.asked = 0, nil
	for i := range ex.attempts[:ex.n] { // an endpoint that leaves is not kept here
		ex.attempts[i].ep = nil
	}
	ex.n, ex.tried = 0, [maxAttempts]*lb.Endpoint{}
	ex.state = exchangeIdle
	if len(p.exchanges) < maxFree {
		p.exchanges = append(p.exchanges, ex)
	}
}

// answer takes one from the free list, empty.
func (p *pool) answer() *answer {
	n := len(p.answers)
	if n == 0 {
		return &answer{w: p.w, pool: p, Response: protocol.Response{DeclaredLength: -1}}
	}
	ans := p.answers[n-1]
	p.answers = p.answers[:n-1]
	return ans
}

func length(b *bytebufferpool.ByteBuffer) int {
	if b == nil {
		return 0
	}
	return len(b.B)
}
