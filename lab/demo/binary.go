package demo

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// sidecarBinary returns the path of the remora binary: the given one, one beside this program,
// or one that it builds from the source tree around the working directory.
func sidecarBinary(ctx context.Context, given, self, dir string) (string, error) {
	path := cmp.Or(given, filepath.Join(filepath.Dir(self), "remora"))
	if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
		return filepath.Abs(path)
	}
	if given != "" {
		return "", fmt.Errorf("demo: the sidecar: %s is no file", given)
	}
	path = filepath.Join(dir, "remora")
	build := exec.CommandContext(ctx, "go", "build", "-o", path, "github.com/remora-proxy/remora/cmd/remora")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("demo: no remora binary: give its path with --remora, put it beside remora-lab, "+
			"or run from the source tree: go build: %w\n%s", err, out)
	}
	return path, nil
}
