package config

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

// Bounds of what errors show. A file may have a text of any length anywhere.
const (
	maxErrors = 100 // of one file
	maxQuoted = 128 // bytes of one text of the file
	maxShown  = 512 // bytes of the path, and of the text of an error
)

// first returns the first errors in the order of their positions, and one that counts the rest.
func (es Errors) first(most int) Errors {
	es.sort()
	if len(es) <= most {
		return es
	}
	rest := Error{File: es[0].File, Text: fmt.Sprintf("and %d more", len(es)-most), Warning: es[0].Warning}
	return append(es[:most:most], rest)
}

// sprintf is fmt.Sprintf, but shortens texts that it quotes. So what is behind them is shown, too.
func sprintf(format string, args ...any) string {
	for i, arg := range args {
		if text, ok := arg.(string); ok {
			args[i] = quotable(text)
		}
	}
	return fmt.Sprintf(format, args...)
}

// quotable is a text that %q shortens.
type quotable string

func (q quotable) Format(to fmt.State, verb rune) {
	text := string(q)
	if verb == 'q' {
		text = strconv.Quote(shorten(text))
	}
	_, _ = to.Write([]byte(text))
}

// shorten shortens a text of the file to maxQuoted.
func shorten(text string) string { return cut(text, maxQuoted) }

// printed returns one line of at most maxShown bytes, with escapes for what a terminal would not show as it is.
func printed(text string) string {
	text = cut(text, maxShown)
	if !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return text
	}
	var line strings.Builder
	for _, r := range text {
		if unicode.IsPrint(r) {
			line.WriteRune(r)
		} else {
			line.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return line.String()
}

// cut shortens text to most bytes, in whole characters.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "..."
}
