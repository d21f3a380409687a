package main

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// journal is a file with a line for each change that was tried: its verdict and its name. A later run with the same file
// does not try the change again. Methods may be called from any goroutine.
type journal struct {
	mu    sync.Mutex
	file  *os.File
	known map[string]verdict
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
		if v, name, ok := strings.Cut(lines.Text(), "\t"); ok {
			j.known[name] = verdict(v)
		}
	}
	return j, lines.Err()
}

func (j *journal) get(c *change) (v verdict, ok bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	v, ok = j.known[c.String()]
	return v, ok
}

func (j *journal) put(c *change, v verdict) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.known[c.String()] = v
	_, err := fmt.Fprintf(j.file, "%s\t%s\n", v, c)
	return err
}
