package demo

import (
	"io"
	"sync"
)

// Screen shows lines that stay, and on a terminal one live line below them.
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
func (s *Screen) Line(line string) { s.put(line+"\n", false) }

// Live replaces the live line.
func (s *Screen) Live(line string) {
	if s.terminal {
		s.put("  "+line, true)
	}
}

// Clear removes the live line.
func (s *Screen) Clear() { s.put("", false) }

// put writes text in place of the live line. It is the next live line, or stays.
func (s *Screen) put(text string, live bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live || live {
		text = eraseLine + text
	}
	s.live = live
	io.WriteString(s.w, text)
}
