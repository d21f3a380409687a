package trace

import "bytes"

// HasMember tells whether one of the members of a tracestate header's value is
// the given one, "key=value" (W3C Trace Context section 3.3.1).
func HasMember(state []byte, member string) bool {
	for len(state) > 0 {
		var m []byte
		m, state, _ = bytes.Cut(state, comma)
		if string(bytes.Trim(m, " \t")) == member {
			return true
		}
	}
	return false
}

var comma = []byte(",")
