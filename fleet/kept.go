package fleet

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/remora-proxy/remora/internal/atomicfile"
	"github.com/remora-proxy/remora/proxy/config"
)

// Kept is the revision that a sidecar runs, as a file on disk.
type Kept struct {
	Prefix string `json:"prefix"` // of the keys; the file of another prefix is not used
	Revision
}

// keptName is the name of the file. No service has it: theirs end in .json.
const keptName = "overlay"

// Keep writes the revision to a directory, in place of the one before.
func (k *Kept) Keep(dir string) error {
	data, err := json.Marshal(k)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(dir, keptName), data)
}

// LoadKept reads the revision that was kept for a prefix. Without one, or without a directory, it returns revision 0 and no
// error.
func LoadKept(dir, prefix string) (r Revision, err error) {
	if dir == "" {
		return Revision{}, nil
	}
	data, err := os.ReadFile(filepath.Join(dir, keptName))
	if errors.Is(err, fs.ErrNotExist) {
		return Revision{}, nil
	}
	if err != nil {
		return Revision{}, err
	}
	var k Kept
	if err := json.Unmarshal(data, &k); err != nil {
		return Revision{}, fmt.Errorf("%s: %w", keptName, err)
	}
	if k.Prefix != prefix {
		return Revision{}, nil
	}
	return k.Revision, nil
}

// NameOf returns the name of a revision in errors.
func NameOf(revision int64) string { return "revision " + strconv.FormatInt(revision, 10) }

// Overlay returns the revision as an overlay; nil for revision 0.
func (r *Revision) Overlay() *config.Overlay {
	if r.Number == 0 {
		return nil
	}
	return &config.Overlay{Name: NameOf(r.Number), Text: []byte(r.Text)}
}
