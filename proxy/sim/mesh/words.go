package mesh

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// words holds the unread words of a line, and the first error.
type words struct {
	left []string
	err  error
}

func split(line string) *words { return &words{left: strings.Fields(line)} }

func (w *words) fail(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf(format, args...)
	}
}

// next returns the next word. what describes it in errors.
func (w *words) next(what string) string {
	if len(w.left) == 0 {
		w.fail("missing %s", what)
		return ""
	}
	word := w.left[0]
	w.left = w.left[1:]
	return word
}

// skip reads the next word, which must be want.
func (w *words) skip(want string) {
	if got := w.next(strconv.Quote(want)); got != want {
		w.fail("got %q, want %q", got, want)
	}
}

// has reads the next word if it is word, and reports whether it was.
func (w *words) has(word string) bool {
	if len(w.left) == 0 || w.left[0] != word {
		return false
	}
	w.left = w.left[1:]
	return true
}

// rest returns the unread words as one string.
func (w *words) rest() string {
	s := strings.Join(w.left, " ")
	w.left = nil
	return s
}

// end returns the first error. Unread words are an error.
func (w *words) end() error {
	if len(w.left) > 0 {
		w.fail("unexpected %q", strings.Join(w.left, " "))
	}
	return w.err
}

func (w *words) whole(what string, least int) int {
	word := w.next(what)
	n, err := strconv.Atoi(word)
	if err != nil || n < least {
		w.fail("%q is not %s, a number from %d", word, what, least)
	}
	return n
}

func (w *words) duration(what string) time.Duration {
	word := w.next(what)
	d, err := time.ParseDuration(word)
	if err != nil || d < 0 {
		w.fail("%q is not %s, a duration such as 50ms", word, what)
	}
	return d
}

func (w *words) number(what string) float64 {
	return w.decimal(w.next(what), what, "a number")
}

func (w *words) decimal(word, what, kind string) float64 {
	x, err := strconv.ParseFloat(word, 64)
	if err != nil || x < 0 {
		w.fail("%q is not %s, %s", word, what, kind)
	}
	return x
}

// share reads a share such as 5%.
func (w *words) share(what string) float64 {
	word := w.next(what)
	digits, ok := strings.CutSuffix(word, "%")
	if !ok {
		w.fail("%q is not %s, a share such as 5%%", word, what)
	}
	return w.decimal(digits, what, "a share such as 5%") / 100
}

// factor reads a factor such as x10.
func (w *words) factor() float64 {
	word := w.next("a factor such as x10")
	digits, ok := strings.CutPrefix(word, "x")
	if !ok {
		w.fail("%q is not a factor such as x10", word)
	}
	return w.decimal(digits, "a factor", "such as x10")
}

// rate reads a rate such as 1000/s.
func (w *words) rate() float64 {
	word := w.next("a rate such as 1000/s")
	digits, ok := strings.CutSuffix(word, "/s")
	if !ok {
		w.fail("%q is not a rate such as 1000/s", word)
	}
	return w.decimal(digits, "a rate", "such as 1000/s")
}

// number formats x without needless digits, and share formats x as a percentage.
func number(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }
func share(x float64) string  { return strconv.FormatFloat(x*100, 'g', 12, 64) + "%" }
