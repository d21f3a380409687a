package main

import (
	"errors"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// size is that of a terminal, in characters.
type size struct{ columns, rows int }

// defaultSize is that of a terminal which does not tell, and of no terminal.
var defaultSize = size{columns: 120, rows: 60}

// What a terminal is told (ECMA-48, and xterm's other screen).
const (
	otherScreen = "\x1b[?1049h\x1b[?25l" // without a cursor
	mainScreen  = "\x1b[?25h\x1b[?1049l"
	home        = "\x1b[H"
	clearLine   = "\x1b[K\r\n"
	clearRest   = "\x1b[J"
)

// screen is the terminal while "remora top" has it.
type screen struct {
	was  unix.Termios
	keys chan byte
}

// openScreen takes the terminal: keys come at once, and are not shown. Ctrl-C
// goes on being a signal.
func openScreen() (*screen, error) {
	was, err := unix.IoctlGetTermios(int(os.Stdin.Fd()), unix.TCGETS)
	if err != nil {
		return nil, errors.New("this is no terminal; --once prints a single frame")
	}
	s := &screen{was: *was, keys: make(chan byte)}
	raw := *was
	raw.Lflag &^= unix.ICANON | unix.ECHO
	raw.Cc[unix.VMIN], raw.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(int(os.Stdin.Fd()), unix.TCSETS, &raw); err != nil {
		return nil, os.NewSyscallError("ioctl", err)
	}
	_, _ = os.Stdout.WriteString(otherScreen)
	go s.read() // ends with the process
	return s, nil
}

func (s *screen) read() {
	key := make([]byte, 1)
	for {
		if n, err := os.Stdin.Read(key); n != 1 || err != nil {
			return
		}
		s.keys <- key[0]
	}
}

// close gives the terminal back as it was.
func (s *screen) close() {
	_, _ = os.Stdout.WriteString(mainScreen)
	_ = unix.IoctlSetTermios(int(os.Stdin.Fd()), unix.TCSETS, &s.was)
}

func (s *screen) size() size {
	w, err := unix.IoctlGetWinsize(int(os.Stdout.Fd()), unix.TIOCGWINSZ)
	if err != nil || w.Col == 0 || w.Row == 0 {
		return defaultSize
	}
	return size{int(w.Col), int(w.Row)}
}

// draw shows lines in the place of what was there, in one write, so that nothing
// flickers.
func (s *screen) draw(lines []string) {
	_, _ = os.Stdout.WriteString(home + strings.Join(lines, clearLine) + clearLine[:len(clearLine)-2] + clearRest)
}
