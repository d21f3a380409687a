package top

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// size is the size of a terminal, in characters.
type size struct{ columns, rows int }

// defaultSize is used without a terminal, and if its size is unknown.
var defaultSize = size{columns: 120, rows: 60}

// Control sequences of terminals (ECMA-48, and xterm's alternate screen).
const (
	otherScreen = "\x1b[?1049h\x1b[?25l" // hides the cursor too
	mainScreen  = "\x1b[?25h\x1b[?1049l"
	home        = "\x1b[H"
	clearLine   = "\x1b[K\r\n"
	clearRest   = "\x1b[J"
)

// column is a column of a table.
type column struct {
	title string
	width int
	left  bool // aligned to the left
	rank  int  // of those that don't fit, columns with the highest rank are left out; 0 stays
}

// table has rows of as many cells as columns.
type table struct {
	columns []column
	rows    [][]string
}

// lines returns the table as lines of at most so many characters. Where columns are left out, the
// end of the head says how many.
func (t *table) lines(room int) []string {
	shown := make([]bool, len(t.columns))
	width, missing := -1, 0
	for i, c := range t.columns {
		shown[i] = true
		width += c.width + 1
	}
	note := ""
	for width+len(note) > room {
		worst := 0
		for i, c := range t.columns {
			if shown[i] && c.rank > t.columns[worst].rank {
				worst = i
			}
		}
		if t.columns[worst].rank == 0 || !shown[worst] {
			break
		}
		shown[worst] = false
		width -= t.columns[worst].width + 1
		missing++
		note = fmt.Sprintf(" +%d", missing)
	}
	line := func(cell func(i int) string) string {
		var cells []string
		for i, c := range t.columns {
			switch {
			case !shown[i]:
			case c.left:
				cells = append(cells, fmt.Sprintf("%-*s", c.width, shorten(cell(i), c.width)))
			default:
				cells = append(cells, fmt.Sprintf("%*s", c.width, cell(i)))
			}
		}
		return strings.Join(cells, " ")
	}
	out := []string{line(func(i int) string { return t.columns[i].title }) + note}
	for _, row := range t.rows {
		out = append(out, line(func(i int) string { return row[i] }))
	}
	return out
}

// Keys that scroll, as terminals send them.
const (
	keyUp       = "\x1b[A"
	keyDown     = "\x1b[B"
	keyPageUp   = "\x1b[5~"
	keyPageDown = "\x1b[6~"
	keyHome     = "\x1b[H"
	keyEnd      = "\x1b[F"
)

// view is the part of the lines that the screen shows. The first line always stays.
type view struct{ first int }

// scroll moves the view by a key, and reports whether it knows the key.
func (v *view) scroll(key string, rows int) bool {
	page := max(rows-3, 1)
	switch key {
	case keyUp, "\x1bOA", "k":
		v.first--
	case keyDown, "\x1bOB", "j":
		v.first++
	case keyPageUp, "b":
		v.first -= page
	case keyPageDown, " ":
		v.first += page
	case keyHome, "\x1bOH", "\x1b[1~", "g":
		v.first = 0
	case keyEnd, "\x1bOF", "\x1b[4~", "G":
		v.first = math.MaxInt32
	default:
		return false
	}
	return true
}

// cut returns what fits of the lines into the rows: the first one, those from the view on, and
// a line that says what is above and below.
func (v *view) cut(lines []string, room size) []string {
	if len(lines) <= room.rows || room.rows < 3 {
		v.first = 0
		return lines[:min(len(lines), max(room.rows, 0))]
	}
	rest, page := lines[1:], room.rows-2
	v.first = min(max(v.first, 0), len(rest)-page)
	status := fmt.Sprintf("%d lines above, %d below: arrows, space, b, g, G; q ends", v.first, len(rest)-v.first-page)
	return slices.Concat(lines[:1], rest[v.first:v.first+page], []string{cutLine(status, room.columns)})
}

// screen is the terminal while "remora top" uses it.
type screen struct {
	was  unix.Termios
	keys chan string
}

// openScreen prepares the terminal: keys are read at once and not shown. Ctrl-C still
// sends a signal.
func openScreen() (*screen, error) {
	was, err := unix.IoctlGetTermios(int(os.Stdin.Fd()), getTermios)
	if err != nil {
		return nil, errors.New("standard input is not a terminal; --once prints a single frame")
	}
	s := &screen{was: *was, keys: make(chan string)}
	raw := *was
	raw.Lflag &^= unix.ICANON | unix.ECHO
	raw.Cc[unix.VMIN], raw.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(int(os.Stdin.Fd()), setTermios, &raw); err != nil {
		return nil, os.NewSyscallError("ioctl", err)
	}
	_, _ = os.Stdout.WriteString(otherScreen)
	go s.read() // ends with the process
	return s, nil
}

func (s *screen) read() {
	key := make([]byte, 16) // a key is one read, if no other was pressed meanwhile
	for {
		n, err := os.Stdin.Read(key)
		if n == 0 || err != nil {
			return
		}
		s.keys <- string(key[:n])
	}
}

// close restores the terminal.
func (s *screen) close() {
	_, _ = os.Stdout.WriteString(mainScreen)
	_ = unix.IoctlSetTermios(int(os.Stdin.Fd()), setTermios, &s.was)
}

func (s *screen) size() size {
	w, err := unix.IoctlGetWinsize(int(os.Stdout.Fd()), unix.TIOCGWINSZ)
	if err != nil || w.Col == 0 || w.Row == 0 {
		return defaultSize
	}
	return size{int(w.Col), int(w.Row)}
}

// draw replaces the content of the screen by lines. One write avoids flicker.
func (s *screen) draw(lines []string) {
	_, _ = os.Stdout.WriteString(home + strings.Join(lines, clearLine) + clearLine[:len(clearLine)-2] + clearRest)
}
