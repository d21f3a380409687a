package link

// scheduler holds the long messages, and decides which of them sends the next DATA frame. Batch messages send only while
// half of the window is left, or, beside other messages, one frame in batchFrames. See lanes for the order of messages that
// are alike.
type scheduler struct {
	all       map[uint64]*outgoing // all messages with DATA to send
	sending   lanes                // those whose first frame has left, without batch
	batch     lanes                // batch messages whose first frame has left
	contested int                  // DATA frames that were sent while both lanes had messages
	credit    int                  // bytes of DATA that the peer still accepts
	window    int                  // the peer's window, which credit never exceeds
	ended     []*outgoing          // messages whose last byte appendFrame has returned; until sent
	held      int                  // bytes of memory of all and ended
	free      []*outgoing
}

const maxFree = 64

// batchWhole is the longest body, in bytes, of a batch message that is sent as a whole. While
// other messages have DATA, one frame in batchFrames is of a batch message.
const (
	batchWhole  = 1 << 10
	batchFrames = 8
)

// clear releases all messages.
func (d *scheduler) clear() {
	for id, s := range d.all {
		delete(d.all, id)
		d.recycle(s)
	}
	d.sent()
	d.sending, d.batch, d.held = lanes{}, lanes{}, 0
}

// unused returns an empty message, for add.
func (d *scheduler) unused() *outgoing {
	if n := len(d.free); n > 0 {
		s := d.free[n-1]
		d.free = d.free[:n-1]
		return s
	}
	return &outgoing{}
}

// recycle releases s, which must be neither in all nor in lanes.
func (d *scheduler) recycle(s *outgoing) {
	d.held -= s.held
	s.release()
	if len(d.free) < maxFree {
		d.free = append(d.free, s)
	}
}

// add adds a message that is filled in. Its DATA waits for begin.
func (d *scheduler) add(s *outgoing) {
	s.held = s.left()
	d.held += s.held
	if d.all == nil {
		d.all = make(map[uint64]*outgoing)
	}
	d.all[s.id] = s
}

// begin lets s send DATA, since its first frame has left.
func (d *scheduler) begin(s *outgoing) {
	s.begun = true
	d.lanesOf(s).add(s)
}

// drop releases s, the rest of which is not sent.
func (d *scheduler) drop(s *outgoing) {
	delete(d.all, s.id)
	if s.begun {
		d.lanesOf(s).remove(s)
	}
	d.recycle(s)
}

// grant adds the credit of a CREDIT frame.
func (d *scheduler) grant(n uint32) { d.credit = min(d.credit+int(n), d.window) }

func (d *scheduler) lanesOf(s *outgoing) *lanes {
	if s.batch {
		return &d.batch
	}
	return &d.sending
}

// spare is the credit that batch messages may use where no other message has DATA. They leave half of the window to others.
func (d *scheduler) spare() int { return d.credit - d.window/2 }

// low reports whether so little credit is left that DATA waits for more, lest its frame be short: more comes, since the
// peer returns each quarter of the window.
func (d *scheduler) low() bool { return d.credit <= d.window/16 }

// ready reports whether a message has both DATA and credit.
func (d *scheduler) ready() bool {
	return d.sending.n > 0 && !d.low() || d.batch.n > 0 && d.spare() > 0
}

// starved reports whether a message has DATA that waits for credit.
func (d *scheduler) starved() bool {
	return d.sending.n > 0 && d.low() || d.batch.n > 0 && d.spare() <= 0
}

// next returns the lanes whose turn it is, and the credit that they may use.
func (d *scheduler) next() (l *lanes, credit int) {
	if d.batch.n == 0 {
		return &d.sending, d.credit
	}
	if d.sending.n == 0 {
		return &d.batch, d.spare()
	}
	if d.contested++; d.contested%batchFrames == 0 {
		return &d.batch, d.credit
	}
	return &d.sending, d.credit
}

// appendFrame appends the next DATA frame to dst, but for the part of a body that ends it. longest is that of a payload,
// in bytes. The scheduler must be ready.
func (d *scheduler) appendFrame(dst []byte, longest int) (_, body []byte) {
	l, credit := d.next()
	s := l.pick()
	if s.lane != l.after(-1) || l == &d.batch && d.sending.n > 0 { // an exception, while others wait
		longest = min(longest, maxWhole-headerRoom)
	}
	n := min(s.left(), longest, credit)
	dst = appendHeader(dst, uint8(frameData), s.id, n)
	dst, body = s.take(dst, n)
	d.credit -= n
	if s.left() > 0 {
		return dst, body
	}
	l.remove(s)
	delete(d.all, s.id)
	d.ended = append(d.ended, s)
	return dst, body
}

// sent releases the owners of the messages that appendFrame has ended.
func (d *scheduler) sent() {
	for _, s := range d.ended {
		d.recycle(s)
	}
	clear(d.ended)
	d.ended = d.ended[:0]
}

// memory returns the bytes of memory of all messages. It visits all of them.
func (d *scheduler) memory() (n int) {
	for _, s := range d.all {
		n += s.memory()
	}
	return n
}

// largest returns the message that holds the most memory, and its bytes, or 0 and 0 if there is none.
func (d *scheduler) largest() (id uint64, n int) {
	for at, s := range d.all {
		if held := s.memory(); held > n || held == n && at < id {
			id, n = at, held
		}
	}
	return id, n
}
