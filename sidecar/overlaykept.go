package sidecar

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/remora-proxy/remora/fleet"
	"github.com/remora-proxy/remora/internal/atomicfile"
)

// keptOverlay is the revision that a sidecar runs, as a file on disk.
type keptOverlay struct {
	Prefix string `json:"prefix"` // of the keys; the file of another prefix is not used
	fleet.Revision
}

// keptName is the name of the file. No service has it: theirs end in .json.
const keptName = "overlay"

// keep writes the revision to a directory, in place of the one before.
func (k *keptOverlay) keep(dir string) error {
	data, err := json.Marshal(k)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(dir, keptName), data)
}

// loadKept reads the revision that was kept for a prefix. Without one, or without a directory, it returns revision 0 and no
// error.
func loadKept(dir, prefix string) (r fleet.Revision, err error) {
	if dir == "" {
		return fleet.Revision{}, nil
	}
	data, err := os.ReadFile(filepath.Join(dir, keptName))
	if errors.Is(err, fs.ErrNotExist) {
		return fleet.Revision{}, nil
	}
	if err != nil {
		return fleet.Revision{}, err
	}
	var k keptOverlay
	if err := json.Unmarshal(data, &k); err != nil {
		return fleet.Revision{}, fmt.Errorf("%s: %w", keptName, err)
	}
	if k.Prefix != prefix {
		return fleet.Revision{}, nil
	}
	return k.Revision, nil
}
