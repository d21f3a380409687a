package main

import (
	"crypto/sha256"
	"os"
	"time"
)

// fileLook is how often a followed file is read.
const fileLook = time.Second

// fileWatch tells when a file has new content. It reads the file, small as that is:
// orchestrators swap symbolic links, for which times of modification and
// notifications of the kernel need care, and the content tells all.
type fileWatch struct {
	path   string
	used   [sha256.Size]byte // what was reported last
	latest [sha256.Size]byte // what the last look found
}

// watchFile takes the content of now for known.
func watchFile(path string) *fileWatch {
	w := &fileWatch{path: path}
	w.used, w.latest = w.digest(), w.digest()
	return w
}

// changed looks at the file. Content is new once two looks in a row have found it:
// a file that is being written is not read halfway.
func (w *fileWatch) changed() bool {
	now := w.digest()
	settled := now == w.latest
	w.latest = now
	if !settled || now == w.used {
		return false
	}
	w.used = now
	return true
}

// digest is zero of a file that can't be read.
func (w *fileWatch) digest() (d [sha256.Size]byte) {
	if b, err := os.ReadFile(w.path); err == nil {
		d = sha256.Sum256(b)
	}
	return d
}

// followFile reloads a file whenever asked to and, with watch, when its content has
// changed, until the sidecar ends.
func (s *sidecar) followFile(content *fileWatch, watch bool, asked <-chan os.Signal) {
	look := time.NewTicker(fileLook)
	defer look.Stop()
	if !watch {
		look.Stop()
	}
	for {
		select {
		case <-asked:
			s.reload(content.path)
		case <-look.C:
			if content.changed() {
				s.reload(content.path)
			}
		case <-s.ended.Done():
			return
		}
	}
}
