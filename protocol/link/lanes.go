package link

import "math/bits"

// lanes holds the long messages that send DATA, by length. The oldest message of the shortest lane sends
// until its end. If all sent in turn, the peer would long have each of them in part: more memory than its
// caches have room for, and it would fetch each byte from there twice.
type lanes struct {
	oldest [laneCount]*outgoing // the oldest message of each lane; from there the messages form a ring, in the order of add
	n      int                  // messages
	frames int                  // picked
	turn   int                  // the lane of the last frame that another lane gave way to
}

const (
	laneCount = 6
	shortLane = 64 << 10 // of the longest message in lane 0, in bytes; messages of each further lane are up to four times as long

	// One frame in laneFrames is of another lane than the shortest, each in its turn. So no message
	// waits forever. Such a frame is at most as long as a whole message.
	laneFrames = 8
)

// laneOf returns the lane of a message with n bytes to send.
func laneOf(n int) int { return min((bits.Len(uint(n-1)/shortLane)+1)/2, laneCount-1) }

// pick returns the message that sends the next frame. There must be one.
func (l *lanes) pick() *outgoing {
	lane := l.after(-1)
	if l.frames++; l.frames%laneFrames == 0 {
		if l.turn = l.after(l.turn); l.turn == lane {
			l.turn = l.after(lane)
		}
		lane = l.turn
	}
	return l.oldest[lane]
}

// after returns the next lane after i that has a message, in a circle.
func (l *lanes) after(i int) int {
	for i = (i + 1) % laneCount; l.oldest[i] == nil; i = (i + 1) % laneCount {
	}
	return i
}

func (l *lanes) add(s *outgoing) {
	l.n++
	s.lane = laneOf(s.left())
	oldest := l.oldest[s.lane]
	if oldest == nil {
		s.prev, s.next = s, s
		l.oldest[s.lane] = s
		return
	}
	s.prev, s.next = oldest.prev, oldest
	s.prev.next, s.next.prev = s, s
}

func (l *lanes) remove(s *outgoing) {
	l.n--
	if s.next == s {
		l.oldest[s.lane] = nil
	} else {
		s.prev.next, s.next.prev = s.next, s.prev
		if l.oldest[s.lane] == s {
			l.oldest[s.lane] = s.next
		}
	}
	s.prev, s.next = nil, nil
}
