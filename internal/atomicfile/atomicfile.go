// Package atomicfile replaces files so that a reader, also one after a power failure, finds the old content or the new
// one.
package atomicfile

import (
	"cmp"
	"os"
	"path/filepath"
)

// Temporary is the pattern of the names of files that are being written.
const Temporary = ".tmp-*"

// Write replaces the file at path by one with the data, which only the owner may read.
func Write(path string, data []byte) (err error) {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, Temporary)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	_, err = f.Write(data)
	if err = cmp.Or(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err = os.Rename(f.Name(), path); err != nil {
		return err
	}
	return syncDir(dir)
}

// syncDir makes a rename in dir survive a power failure.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
