package demo

import (
	"fmt"
	"io"
	"sync"
)

// Screen shows the progress of the demo: lines that stay, and on a terminal one live line
// below them that is overwritten.
type Screen struct {
	mu       sync.Mutex
	w        io.Writer
	terminal bool
	live     bool // there is a live line
}

// NewScreen writes to w. It leaves out live lines if w is not a terminal.
func NewScreen(w io.Writer, terminal bool) *Screen { return &Screen{w: w, terminal: terminal} }

const eraseLine = "\r\x1b[K"

// Line writes a line that stays.
func (s *Screen) Line(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live {
		io.WriteString(s.w, eraseLine)
		s.live = false
	}
	fmt.Fprintln(s.w, line)
}

// Live replaces the live line.
func (s *Screen) Live(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.terminal {
		io.WriteString(s.w, eraseLine+"  "+line)
		s.live = true
	}
}

// Clear removes the live line.
func (s *Screen) Clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live {
		io.WriteString(s.w, eraseLine)
		s.live = false
	}
}
