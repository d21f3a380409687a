package main

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// journal is a file with a line for each change that was tried: its verdict, the state of its package, and its name. A later run
// with the same file does not try the change again while the package and its tests are the same. Methods may be called from any
// goroutine.
type journal struct {
	mu    sync.Mutex
	file  *os.File
	known map[string]verdict // by state and name
}

// openJournal opens a file, which is made if it is missing.
func openJournal(path string) (*journal, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	j := &journal{file: file, known: make(map[string]verdict)}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		v, key, _ := strings.Cut(lines.Text(), "\t")
		switch v := verdict(v); v { // a run that was killed may have left a part of a line
		case noticed, survived, uncompiled:
			j.known[key] = v
		}
	}
	return j, lines.Err()
}

func keyOf(state string, c *change) string { return state + "\t" + c.String() }

// get returns what became of a change, or "".
func (j *journal) get(state string, c *change) verdict {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.known[keyOf(state, c)]
}

func (j *journal) put(state string, c *change, v verdict) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.known[keyOf(state, c)] = v
	_, err := fmt.Fprintf(j.file, "%s\t%s\n", v, keyOf(state, c))
	return err
}
