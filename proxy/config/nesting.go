package config

import (
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/token"
)

// nestingError is the error of a file that is nested more than maxDepth deep.
type nestingError struct{ at *token.Token }

func (nestingError) Error() string { return "nested too deep" }

// tokenize splits a file into tokens, and refuses one that is nested too deep: the library's parser
// recurses, and at each level its memory grows with the levels above.
func tokenize(data []byte) (token.Tokens, error) {
	tokens := lexer.Tokenize(string(data))
	var n nesting
	for _, t := range tokens {
		if n.add(t); len(n.open) > maxDepth {
			return nil, nestingError{t}
		}
	}
	return tokens, nil
}

// nesting follows the collections that are open at a token.
type nesting struct {
	// Outermost first: the column of one in block style, and the negative type of the opening
	// token of one in flow style.
	open []int
	flow int // how many of them are in flow style
}

// add takes the next token. A mapping in block style is known by its first key.
func (n *nesting) add(t *token.Token) {
	switch t.Type {
	case token.SequenceStartType, token.MappingStartType:
		n.open = append(n.open, -int(t.Type))
		n.flow++
	case token.SequenceEndType:
		n.close(token.SequenceStartType)
	case token.MappingEndType:
		n.close(token.MappingStartType)
	case token.SequenceEntryType: // in flow style it is wrong, but the parser recurses first
		n.entry(at(t).column)
	case token.MappingValueType:
		if n.flow > 0 {
			return
		}
		if key := t.Prev; key != nil && at(key).line == at(t).line {
			t = key
		}
		n.entry(at(t).column)
	}
}

// entry takes an entry of a collection in block style. It ends those that began at its column, or
// right of it.
func (n *nesting) entry(column int) {
	last := len(n.open)
	for last > 0 && n.open[last-1] >= column {
		last--
	}
	n.open = append(n.open[:last], column)
}

// close ends the innermost collection in flow style, if a token of type start opened it.
func (n *nesting) close(start token.Type) {
	last := len(n.open) - 1
	for last >= 0 && n.open[last] > 0 {
		last--
	}
	if last >= 0 && n.open[last] == -int(start) {
		n.open = n.open[:last]
		n.flow--
	}
}
