package main

import (
	"errors"
	"os"
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

// screen is the terminal while "remora top" uses it.
type screen struct {
	was  unix.Termios
	keys chan byte
}

// openScreen prepares the terminal: keys are read at once and not shown. Ctrl-C still
// sends a signal.
func openScreen() (*screen, error) {
	was, err := unix.IoctlGetTermios(int(os.Stdin.Fd()), getTermios)
	if err != nil {
		return nil, errors.New("standard input is not a terminal; --once prints a single frame")
	}
	s := &screen{was: *was, keys: make(chan byte)}
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
	key := make([]byte, 1)
	for {
		if n, err := os.Stdin.Read(key); n != 1 || err != nil {
			return
		}
		s.keys <- key[0]
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
