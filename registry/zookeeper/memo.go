package zookeeper

// memo keeps what was made of texts as long as they are in use, so that a change of one record does not read all again.
type memo[T any] struct{ now, before map[string]T }

// begin starts a pass over all texts. What the last pass did not ask for is forgotten.
func (m *memo[T]) begin() { m.now, m.before = make(map[string]T, len(m.now)), m.now }

// get returns what parse makes of a text.
func (m *memo[T]) get(text string, parse func(string) T) T {
	v, ok := m.now[text]
	if ok {
		return v
	}
	if v, ok = m.before[text]; !ok {
		v = parse(text)
	}
	m.now[text] = v
	return v
}
