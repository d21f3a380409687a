package proxy

import "github.com/remora-proxy/remora/protocol/link"

func (s *linkSession) weight() int {
	n := s.r.Buffered() + s.w.Queued() + s.outbound.counted
	for ex := range s.streams.each {
		n += ex.weight()
	}
	return n
}

func (s *linkSession) cut() {
	out := s.streams.inOrder()
	s.close()
	for _, carried := range out {
		carried.value.forsake()
	}
	s.worker.remove(s)
	s.conn.Close()
}

// relieve gives up a request that arrives, is worked on, or of which the answer
// waits to leave. What is encoded can't be withdrawn.
func (s *linkSession) relieve() bool {
	part, arrived := s.r.Largest()
	answer, waits := s.w.Largest()
	ex, held := s.largest()
	switch most := max(arrived, waits, held); {
	case most < shedLeast:
		return false
	case most == held:
		ex.shed()
	case most == arrived:
		s.worker.stats.failed(FailShed)
		s.r.Forget(part)
		s.OnReject(part, link.Overload)
	default:
		s.worker.stats.failed(FailShed)
		s.w.Drop(answer)
		s.w.Refused(answer, FailShed.refusal(true))
	}
	s.schedule(false)
	s.account()
	return true
}

// largest is the exchange that holds the most, the oldest of equals.
func (s *linkSession) largest() (ex *exchange, held int) {
	for other := range s.streams.each {
		if n := other.weight(); n > held || n == held && ex != nil && other.tag < ex.tag {
			ex, held = other, n
		}
	}
	return ex, held
}

// shed gives the exchange up, at the applications too.
func (ex *exchange) shed() {
	if ex.state != exchangeActive {
		ex.forsake()
		return
	}
	for i := range ex.attempts[:ex.n] {
		ex.attempts[i].abort()
	}
	ex.fail(FailShed)
}

// relieve gives up the answer of which most is here.
func (c *linkClient) relieve() bool {
	id, n := c.r.Largest()
	if n < shedLeast {
		return false
	}
	a := c.streams.get(id)
	if a == nil {
		c.r.Forget(id)
		c.account()
		return true
	}
	c.giveUp(a)
	a.failed(FailShed)
	return true
}

func (c *linkClient) cut() { c.lost() }
