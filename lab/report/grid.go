package report

import (
	"strings"
	"unicode/utf8"
)

// A Grid is a table of text. Each row has as many cells as Head.
type Grid struct {
	Head []string
	Rows [][]string
}

// Text has the columns aligned, for a terminal.
func (g Grid) Text() string {
	widths := make([]int, len(g.Head))
	for _, row := range g.all() {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for _, row := range g.all() {
		var line strings.Builder
		for i, cell := range row {
			line.WriteString(cell + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2))
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return b.String()
}

// Markdown is the table as GitHub has it.
func (g Grid) Markdown() string {
	var b strings.Builder
	for i, row := range g.all() {
		for _, cell := range row {
			b.WriteString("| " + strings.ReplaceAll(cell, "|", `\|`) + " ")
		}
		b.WriteString("|\n")
		if i == 0 {
			b.WriteString(strings.Repeat("|---", len(row)) + "|\n")
		}
	}
	return b.String()
}

func (g Grid) all() [][]string { return append([][]string{g.Head}, g.Rows...) }
