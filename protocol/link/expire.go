package link

import (
	"slices"
	"time"
)

// Midway tells whether a frame or a message has arrived in part, so that Expire
// has something to watch over.
func (r *Reader) Midway() bool { return r.held > 0 || r.partial != nil || r.left > 0 }

// Expire gives up what has been on its way for longer than age, by the times at
// which Expire was called: a message is rejected (Handler.OnReject with
// DeadlinePassed) and what else arrives of it is skipped; a single frame, or the
// preface, that does not come to its end is an error, which means: close the
// link. now is any clock that only goes forward, and not 0.
func (r *Reader) Expire(now, age time.Duration, h Handler) error {
	if r.err != nil || r.state == readClosed {
		return r.err
	}
	switch inFrame := r.partial != nil || r.left > 0; {
	case !inFrame:
		r.since = 0
	case r.since == 0 || r.moved != r.stalled:
		r.stalled, r.since = r.moved, now
	case now-r.since >= age:
		r.err = ErrSlow
		return r.err
	}
	var late []uint64
	for id, s := range r.streams {
		if s.seen == 0 {
			s.seen = now
		} else if now-s.seen >= age {
			late = append(late, id)
		}
	}
	slices.Sort(late)
	for _, id := range late {
		r.Forget(id)
		h.OnReject(id, DeadlinePassed)
	}
	return nil
}
