package queues

import (
	"time"

	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/lb/spare"
	"github.com/remora-proxy/remora/proxy/hedge/class"
)

// request is one request of a caller.
type request struct {
	number   uint64
	caller   *caller
	start    time.Duration
	size     int
	class    class.ID
	paid     bool       // see hedge.Delays.DrawPaid
	attempts [2]attempt // the hedge is the second one
	tried    []*lb.Endpoint
	missed   int
	done     bool
	held     int   // events that have the request, and queues; at 0 its memory serves another one
	timer    event // the first hedge timer
	unarmed  bool  // timer was not added to the events

	overtaken time.Duration // when a hedge's response came before the primary's
}

// attempt is one try of a request at a replica.
type attempt struct {
	request *request
	number  uint32 // see arena.attempt

	endpoint *lb.Endpoint // nil if the attempt was not made
	replica  *replica
	hedge    bool
	refused  bool
	over     bool // nobody waits for it
	tied     bool // the consumer wants to know when it, a primary, gets a worker
	working  bool // a worker has it, or had it
	sent     time.Duration
	work     time.Duration
	reached  time.Duration
	load     lb.Load  // reported with the response
	class    class.ID // at the replica

	found, foundByApp spare.Level
}

// setTimer sets the timer of the hedge, which fires unless the primary responds before.
func (r *request) setTimer(delay time.Duration) {
	w := r.caller.w
	r.timer, r.unarmed = w.event(delay, late, &r.attempts[0]), true
	r.arm(w.now + network)
}

// arm adds the timer to the events if it fires before the primary responds, at the earliest at the time responds. Most
// timers would fire for nothing: the heap of events would be many times as large, and all requests would live as long.
func (r *request) arm(responds time.Duration) {
	if w := r.caller.w; r.unarmed && (r.timer.at <= responds || w.allTimers) {
		r.unarmed = false
		w.add(r.timer, &r.attempts[0])
	}
}

// chunk is how many requests are allocated at a time.
const chunk = 128

// arena is the memory of all requests.
type arena struct {
	chunks []*[chunk]request
	free   []*request
}

// take returns memory for a request. All but tried's capacity is zero.
func (m *arena) take() *request {
	if len(m.free) == 0 {
		added := new([chunk]request)
		for i := range added {
			r := &added[i]
			for k := range r.attempts {
				r.attempts[k] = attempt{request: r, number: uint32(2*(len(m.chunks)*chunk+i) + k)}
			}
			m.free = append(m.free, r)
		}
		m.chunks = append(m.chunks, added)
	}
	last := len(m.free) - 1
	r := m.free[last]
	m.free = m.free[:last]
	return r
}

// attempt returns the attempt with a number.
func (m *arena) attempt(number uint32) *attempt {
	return &m.chunks[number/(2*chunk)][number/2%chunk].attempts[number%2]
}

// release takes back what an event or a queue held.
func (m *arena) release(r *request) {
	if r.held--; r.held > 0 {
		return
	}
	first, hedge, tried := r.attempts[0].number, r.attempts[1].number, r.tried[:0]
	*r = request{tried: tried}
	r.attempts[0] = attempt{request: r, number: first}
	r.attempts[1] = attempt{request: r, number: hedge}
	m.free = append(m.free, r)
}
