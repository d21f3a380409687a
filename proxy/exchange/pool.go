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
	copies    []*Exchange // in flight, by CallIndex
}

// maxFree bounds the free list; the garbage collector gets the rest.
const maxFree = 4096

// NewPool makes the pool of the loop of w.
func NewPool(w *shard.Shard) *Pool { return &Pool{shard: w, responses: race.Responses{Shard: w}} }

// Exchange takes an idle exchange from the free list.
func (p *Pool) Exchange(from Caller) *Exchange {
	n := len(p.exchanges)
	if n == 0 {
		ex := &Exchange{shard: p.shard, pool: p, caller: from}
		ex.deadline.Fire, ex.deadline.Pooled = ex.onDeadline, true
		ex.race.Init(p.shard, &p.responses, (*owner)(ex), &ex.Request)
		return ex
	}
	ex := p.exchanges[n-1]
	p.exchanges[n-1] = nil
	p.exchanges = p.exchanges[:n-1]
	ex.caller = from
	return ex
}

// Copy returns an exchange of its own for a copy of the request of ex, which from is the caller of.
// BeginCopy must follow.
func (p *Pool) Copy(ex *Exchange, from Caller) *Exchange {
	c, size := p.Exchange(from), ex.Request.Size()
	c.HeadBuffer = p.shard.Buffers.GetRoom(size)
	ex.Request.CopyTo(&c.Request, c.HeadBuffer)
	c.Charge()
	return c
}

func (p *Pool) addCopy(ex *Exchange) {
	ex.CallIndex = len(p.copies)
	p.copies = append(p.copies, ex)
}

// removeCopy removes a copy that has ended; the last one in flight gets its place.
func (p *Pool) removeCopy(ex *Exchange) {
	last := len(p.copies) - 1
	moved := p.copies[last]
	p.copies[ex.CallIndex], p.copies[last] = moved, nil
	moved.CallIndex = ex.CallIndex
	p.copies = p.copies[:last]
}

// ShedCopy abandons a copy of a request because memory is short, and reports whether there was
// one.
func (p *Pool) ShedCopy() bool {
	n := len(p.copies)
	if n > 0 {
		p.copies[n-1].Shed()
	}
	return n > 0
}

// Recycle returns an exchange that never began.
func (p *Pool) Recycle(ex *Exchange) {
	ex.releaseRequest()
	p.reuse(ex)
}

// reuse returns an idle exchange whose request memory is released.
func (p *Pool) reuse(ex *Exchange) {
	ex.race.Reset()
	ex.caller, ex.course, ex.outcome = nil, course{}, outcomes{}
	ex.StreamID, ex.began, ex.copied = 0, 0, false
	ex.Injected, ex.Fallback, ex.Cached = 0, Fallback{}, 0
	ex.RequestID, ex.Refusal, ex.NoHedge, ex.batch, ex.ClassName = nil, nil, false, false, nil
	ex.Arrived, ex.headChecked, ex.newCookie = 0, false, ex.newCookie[:0]
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
	ex.OriginalPath, ex.OriginalHost = nil, nil
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
