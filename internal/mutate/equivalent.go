package main

import (
	_ "embed"
	"fmt"
	"strings"
)

//go:embed equivalent.txt
var equivalentText string

// equivalents reads equivalent.txt: the reasons why changes can't be noticed, by the names of the changes. A line that is not
// indented names a change; the next one is the reason. Lines that begin with # are comments.
func equivalents(text string) (reasons map[string]string, err error) {
	reasons = make(map[string]string)
	name := ""
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		reason, isReason := strings.CutPrefix(line, "\t")
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case isReason && name != "":
			if _, twice := reasons[name]; twice {
				return nil, fmt.Errorf("equivalent.txt: %q is there twice", name)
			}
			reasons[name], name = reason, ""
		case isReason || name != "":
			return nil, fmt.Errorf("equivalent.txt: %q: a change and its reason are a line each", line)
		default:
			name = line
		}
	}
	if name != "" {
		return nil, fmt.Errorf("equivalent.txt: %q has no reason", name)
	}
	return reasons, nil
}
