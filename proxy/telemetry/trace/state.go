package trace

import (
	"bytes"
	"strings"
)

// maxMembers is how many members a trace state has at most (W3C Trace Context
// section 3.3.1).
const maxMembers = 32

// HasMember tells whether one of the members of a tracestate header's value is
// the given one, "key=value" (W3C Trace Context section 3.3.1).
func HasMember(state []byte, member string) bool {
	for len(state) > 0 {
		var m []byte
		if m, state = next(state); string(m) == member {
			return true
		}
	}
	return false
}

// State is a trace state that is being put together. The zero State is ready for
// Begin, which makes it ready to be used again.
type State struct {
	Text []byte // the value of a tracestate header

	key     string // of the first member, with its equals sign
	members int
}

// Begin makes member, "key=value", all that there is.
func (s *State) Begin(member string) {
	s.Text, s.members = append(s.Text[:0], member...), 1
	s.key = member[:strings.IndexByte(member, '=')+1]
}

// Add adds the members of a tracestate header's value, in their order. Left out are
// empty ones, those of the first one's key, whose place that has taken, and what is
// over 32: recipients drop the whole of a longer list.
func (s *State) Add(value []byte) {
	for len(value) > 0 && s.members < maxMembers {
		var m []byte
		if m, value = next(value); len(m) > 0 && !bytes.HasPrefix(m, []byte(s.key)) {
			s.Text = append(append(s.Text, ','), m...)
			s.members++
		}
	}
}

// next cuts the first member off a tracestate header's value, without the white
// space around it.
func next(state []byte) (member, rest []byte) {
	member, rest, _ = bytes.Cut(state, comma)
	return bytes.Trim(member, " \t"), rest
}

var comma = []byte(",")
