package sidecar

import (
	"context"
	"crypto/sha256"
	"os"
	"time"
)

// fileInterval is the time between two reads of a watched file.
const fileInterval = time.Second

// ConfigFile detects new content of the configuration file. It reads the file, which
// is small: orchestrators replace it by changing symbolic links, which modification
// times and notifications of the kernel do not reliably show.
type ConfigFile struct {
	path   string
	known  [sha256.Size]byte // content of the open, or that was reported last
	latest [sha256.Size]byte // content of the last read
}

// OpenConfigFile returns a ConfigFile to which the current content is known.
func OpenConfigFile(path string) *ConfigFile {
	f := &ConfigFile{path: path}
	f.known, f.latest = f.digest(), f.digest()
	return f
}

// changed reads the file, and reports whether it has new content. Content is new once
// two reads in a row have found it, so that a file in the middle of a write is ignored.
func (f *ConfigFile) changed() bool {
	now := f.digest()
	stable := now == f.latest
	f.latest = now
	if !stable || now == f.known {
		return false
	}
	f.known = now
	return true
}

// digest returns the digest of the content, or zero if the file can't be read.
func (f *ConfigFile) digest() (d [sha256.Size]byte) {
	if b, err := os.ReadFile(f.path); err == nil {
		d = sha256.Sum256(b)
	}
	return d
}

// A content that was refused for a reason that may pass is tried again after firstRetry
// intervals, then after twice as many each time, up to lastRetry.
const (
	firstRetry = 5
	lastRetry  = 60
)

// retries counts the intervals until a refused content is tried again. Its pause is 0 if
// it is not.
type retries struct{ pause, left int }

// due reports whether the content may be tried now. It is called once in an interval.
func (r *retries) due() bool {
	if r.left > 0 {
		r.left--
	}
	return r.pause > 0 && r.left == 0
}

// tried notes a try, of new content or not, and whether another may help.
func (r *retries) tried(isNew, mayPass bool) {
	switch {
	case !mayPass:
		*r = retries{}
		return
	case isNew || r.pause == 0:
		r.pause = firstRetry
	default:
		r.pause = min(2*r.pause, lastRetry)
	}
	r.left = r.pause
}

// next reads the file, and reports whether to try it now, and whether its content is new.
// A retry waits while the content changes.
func (f *ConfigFile) next(again *retries) (try, isNew bool) {
	isNew = f.changed()
	due := again.due()
	return isNew || due && f.latest == f.known, isNew
}

// run calls reload after each signal and, with watch, after each change of the content,
// until ctx ends. reload reports whether it was refused for a reason that may pass: with
// watch it is then called again.
func (f *ConfigFile) run(ctx context.Context, watch bool, signals <-chan os.Signal, reload func() (mayPass bool)) {
	var tick <-chan time.Time
	if watch {
		tick = time.Tick(fileInterval)
	}
	var again retries
	for {
		select {
		case <-signals:
			again.tried(true, reload())
		case <-tick:
			if try, isNew := f.next(&again); try {
				again.tried(isNew, reload())
			}
		case <-ctx.Done():
			return
		}
	}
}
