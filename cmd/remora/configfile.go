package main

import (
	"context"
	"crypto/sha256"
	"os"
	"time"
)

// fileInterval is the time between two reads of a watched file.
const fileInterval = time.Second

// configFile detects new content of the configuration file. It reads the file, which
// is small: orchestrators replace it by changing symbolic links, which modification
// times and notifications of the kernel do not reliably show.
type configFile struct {
	path     string
	reported [sha256.Size]byte // content that was reported last
	latest   [sha256.Size]byte // content of the last read
}

// openConfigFile returns a configFile that has reported the current content.
func openConfigFile(path string) *configFile {
	f := &configFile{path: path}
	f.reported, f.latest = f.digest(), f.digest()
	return f
}

// changed reads the file, and reports whether it has new content. Content is new once
// two reads in a row have found it, so that a file in the middle of a write is ignored.
func (f *configFile) changed() bool {
	now := f.digest()
	stable := now == f.latest
	f.latest = now
	if !stable || now == f.reported {
		return false
	}
	f.reported = now
	return true
}

// digest returns the digest of the content, or zero if the file can't be read.
func (f *configFile) digest() (d [sha256.Size]byte) {
	if b, err := os.ReadFile(f.path); err == nil {
		d = sha256.Sum256(b)
	}
	return d
}

// run calls reload after each signal and, with watch, after each change of the
// content, until ctx ends.
func (f *configFile) run(ctx context.Context, watch bool, signals <-chan os.Signal, reload func(path string)) {
	var tick <-chan time.Time
	if watch {
		tick = time.Tick(fileInterval)
	}
	for {
		select {
		case <-signals:
			reload(f.path)
		case <-tick:
			if f.changed() {
				reload(f.path)
			}
		case <-ctx.Done():
			return
		}
	}
}
