package exchange

import (
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/route"
	"github.com/remora-proxy/remora/proxy/shard"
)

// Pool is the free lists of one loop: exchanges and responses for the next requests.
type Pool struct {
	shard     *shard.Shard
	exchanges []*Exchange
	responses race.Responses
	Copies    Copies
}

// maxFree bounds the free list; the garbage collector gets the rest.
const maxFree = 4096

// NewPool makes the pool of the loop of w.
func NewPool(w *shard.Shard) *Pool {
	p := &Pool{shard: w, responses: race.Responses{Shard: w}}
	p.Copies = Copies{pool: p, listener: Listener{Name: "copy", copies: true}}
	return p
}

// Exchange takes an idle exchange from the free list.
func (p *Pool) Exchange(from Caller) *Exchange {
	n := len(p.exchanges)
	if n == 0 {
		ex := &Exchange{message: message{shard: p.shard}, pool: p, caller: from}
		ex.deadline.Fire, ex.deadline.Pooled = ex.onDeadline, true
		ex.race.Init(p.shard, &p.responses, owner{ex}, &ex.Request)
		return ex
	}
	ex := p.exchanges[n-1]
	p.exchanges[n-1] = nil
	p.exchanges = p.exchanges[:n-1]
	ex.caller = from
	return ex
}

// Recycle returns an exchange that never began.
func (p *Pool) Recycle(ex *Exchange) {
	ex.releaseRequest()
	p.reuse(ex)
}

// reuse returns an idle exchange whose request memory is released.
func (p *Pool) reuse(ex *Exchange) {
	ex.race.Reset()
	ex.caller, ex.passing, ex.facts, ex.newCookie = nil, passing{}, facts{}, ex.newCookie[:0]
	ex.Request.Headers, ex.Request.Trailers = protocol.KeepFields(ex.Request.Headers), protocol.KeepFields(ex.Request.Trailers)
	if cap(ex.Forwarded) > maxForwarded {
		ex.Forwarded = nil
	}
	if cap(ex.Path) > maxRewritten {
		ex.Path = nil
	}
	if cap(ex.Edited) > maxEdited {
		ex.Edited = nil
	}
	if len(p.exchanges) < maxFree {
		p.exchanges = append(p.exchanges, ex)
	}
}

// Response returns an empty response, without buffers. The caller owns it.
func (p *Pool) Response() *race.Response { return p.responses.New() }

// Answer returns a as a response to req. The caller owns it.
func (p *Pool) Answer(a *route.Answer, req *protocol.Request) *race.Response {
	res := p.Response()
	res.HeadBuffer = p.shard.Buffers.Get(0)
	res.HeadBuffer.B = a.Fill(&res.Response, req, res.HeadBuffer.B)
	res.AddDate()
	res.Charge()
	return res
}
