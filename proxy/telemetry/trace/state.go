package trace

import (
	"bytes"
	"strings"
)

// maxMembers is the most members that a tracestate may have (W3C Trace Context section 3.3.1).
const maxMembers = 32

// HasMember reports whether a tracestate header's value contains the member "key=value".
func HasMember(state []byte, member string) bool {
	for len(state) > 0 {
		var m []byte
		if m, state = next(state); string(m) == member {
			return true
		}
	}
	return false
}

// State builds the value of a tracestate header. Begin starts it, in a zero or a used State.
type State struct {
	Text []byte // the value so far

	key     string // key of the first member, with its equals sign
	members int
}

// Begin makes member, "key=value", the only member.
func (s *State) Begin(member string) {
	s.Text, s.members = append(s.Text[:0], member...), 1
	s.key = member[:strings.IndexByte(member, '=')+1]
}

// Add adds the members of a tracestate header's value, in order. It leaves out empty
// members, members with the key of the first one, which replaces them, and all after
// the 32nd: recipients ignore longer lists as a whole.
func (s *State) Add(value []byte) {
	for len(value) > 0 && s.members < maxMembers {
		var m []byte
		if m, value = next(value); len(m) > 0 && !bytes.HasPrefix(m, []byte(s.key)) {
			s.Text = append(append(s.Text, ','), m...)
			s.members++
		}
	}
}

// next splits off the first member of a tracestate header's value, without white space around.
func next(state []byte) (member, rest []byte) {
	member, rest, _ = bytes.Cut(state, comma)
	return bytes.Trim(member, " \t"), rest
}

var comma = []byte(",")
