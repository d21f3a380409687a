package caching

// matcher finds patterns in names of headers, in one pass: the automaton of Aho and Corasick. The symbols of
// a name are its letters, in any case. What is between words counts as a hyphen, as do both ends of a name.
type matcher struct {
	next []uint16 // by state and symbol; a state is a multiple of symbols, 0 where no pattern has begun
}

const (
	symbolOther  = 0 // no pattern has it
	symbolHyphen = 1
	firstLetter  = 2
	symbols      = 32

	found = 1 // takes the place of the states in which a pattern has ended
)

var symbolOf = func() (of [256]uint8) {
	for c := range of {
		if l := lower(byte(c)); 'a' <= l && l <= 'z' {
			of[c] = firstLetter + l - 'a'
		}
	}
	for _, c := range "-_." {
		of[c] = symbolHyphen
	}
	return of
}()

func newMatcher(patterns []string) *matcher {
	m := &matcher{next: make([]uint16, symbols)}
	for _, p := range patterns {
		m.add(p)
	}
	m.link()
	return m
}

// add adds the states of a pattern.
func (m *matcher) add(pattern string) {
	state := uint16(0)
	for i := range len(pattern) {
		to := &m.next[state+uint16(symbolOf[pattern[i]])]
		switch {
		case *to == found: // a shorter pattern
			return
		case i == len(pattern)-1:
			*to = found
		case *to == 0:
			state = uint16(len(m.next))
			*to = state
			m.next = append(m.next, make([]uint16, symbols)...)
		default:
			state = *to
		}
	}
}

// link completes the states. Where the pattern of a state does not go on, the longest other one does that its
// end begins.
func (m *matcher) link() {
	other := map[uint16]uint16{}
	for queue := []uint16{0}; len(queue) > 0; queue = queue[1:] {
		state := queue[0]
		for s := range uint16(symbols) {
			to, instead := &m.next[state+s], uint16(0)
			if state > 0 {
				instead = m.next[other[state]+s]
			}
			switch {
			case *to == found:
			case *to == 0 || instead == found:
				*to = instead
			default:
				other[*to] = instead
				queue = append(queue, *to)
			}
		}
	}
}

// find reports whether a name has a pattern.
func (m *matcher) find(name []byte) bool {
	state := m.next[symbolHyphen]
	for _, c := range name {
		if state = m.next[state+uint16(symbolOf[c])]; state == found {
			return true
		}
	}
	return m.next[state+symbolHyphen] == found
}
