package config

import (
	"fmt"

	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/token"
)

// boundError is the error of a file that exceeds a bound at a token.
type boundError struct {
	at   *token.Token
	text string
}

func (e boundError) Error() string { return e.text }

// tokenize splits a file into tokens, and refuses one that the library's parser has no bound for. The parser
// recurses for each level, with memory for all levels above. For each key of a mapping it recurses, too, and copies
// the keys behind it. So its time grows with the square of the keys, and with that of the documents. Checks that
// compare the items of a list have the same bound.
func tokenize(data []byte) (token.Tokens, error) {
	tokens := lexer.Tokenize(string(data))
	var n nesting
	documents := 0
	for _, t := range tokens {
		if t.Type == token.DocumentHeaderType {
			documents++
		}
		n.add(t)
		switch {
		case len(n.open) > maxDepth:
			return nil, boundError{t, fmt.Sprintf("nested more than %d deep", maxDepth)}
		case n.entries() > maxEntries:
			return nil, boundError{t, fmt.Sprintf("a mapping or list of more than %d entries", maxEntries)}
		case documents > maxDocuments:
			return nil, boundError{t, fmt.Sprintf("more than %d documents; expected one document per file", maxDocuments)}
		}
	}
	return tokens, nil
}

// nesting follows the collections that are open at a token.
type nesting struct {
	open []level // outermost first
	flow int     // how many of them are in flow style
}

// level is an open collection. A list in block style may be at the column of the key whose value it is; then one
// level has both.
type level struct {
	at    int // the column of one in block style; the negative type of the opening token of one in flow style
	keys  int // of a mapping, so far
	items int // of a list, so far
}

// entries returns how many keys or items the innermost collection has so far.
func (n *nesting) entries() int {
	if len(n.open) == 0 {
		return 0
	}
	last := &n.open[len(n.open)-1]
	return max(last.keys, last.items)
}

// add takes the next token. A mapping in block style is known by its first key.
func (n *nesting) add(t *token.Token) {
	switch t.Type {
	case token.SequenceStartType, token.MappingStartType:
		n.open = append(n.open, level{at: -int(t.Type)})
		n.flow++
	case token.SequenceEndType:
		n.close(token.SequenceStartType)
	case token.MappingEndType:
		n.close(token.MappingStartType)
	case token.SequenceEntryType: // in flow style it is wrong, but the parser recurses first
		n.entry(at(t).column).items++
	case token.MappingKeyType: // "? key"; a value with a colon of its own may follow
		if n.flow > 0 {
			n.open[len(n.open)-1].keys++
			return
		}
		n.entry(at(t).column).keys++
	case token.CollectEntryType:
		if n.flow > 0 {
			n.open[len(n.open)-1].items++
		}
	case token.MappingValueType:
		if n.flow > 0 {
			n.open[len(n.open)-1].keys++
			return
		}
		if key := t.Prev; key != nil && at(key).line == at(t).line {
			t = key
		}
		l := n.entry(at(t).column)
		l.keys, l.items = l.keys+1, 0
	}
}

// entry returns the level of the collection in block style that has an entry at a column. It ends collections
// that began right of the column.
func (n *nesting) entry(column int) *level {
	last := len(n.open)
	for last > 0 && n.open[last-1].at > column {
		last--
	}
	n.open = n.open[:last]
	if last == 0 || n.open[last-1].at != column {
		n.open = append(n.open, level{at: column})
	}
	return &n.open[len(n.open)-1]
}

// close ends the innermost collection in flow style, if a token of type start opened it.
func (n *nesting) close(start token.Type) {
	last := len(n.open) - 1
	for last >= 0 && n.open[last].at > 0 {
		last--
	}
	if last >= 0 && n.open[last].at == -int(start) {
		n.open = n.open[:last]
		n.flow--
	}
}
