package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const modulePath = "github.com/remora-proxy/remora"

// sidecarBinary returns the path of the remora binary: the given one, one beside this program,
// or one that it builds from the source tree around the working directory.
func sidecarBinary(ctx context.Context, given, self, dir string) (string, error) {
	if given != "" {
		path, err := filepath.Abs(given)
		if err != nil {
			return "", err
		}
		if _, err := os.Stat(path); err != nil {
			return "", fmt.Errorf("demo: the sidecar: %w", err)
		}
		return path, nil
	}
	sibling := filepath.Join(filepath.Dir(self), "remora")
	if info, err := os.Stat(sibling); err == nil && info.Mode().IsRegular() {
		return sibling, nil
	}
	root, err := sourceTree()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "remora")
	build := exec.CommandContext(ctx, "go", "build", "-o", path, "./cmd/remora")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("demo: go build ./cmd/remora: %w\n%s", err, out)
	}
	return path, nil
}

// sourceTree returns the root of this module above the working directory.
func sourceTree() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(mod), "module "+modulePath+"\n") {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("demo: no remora binary: give its path with --remora, put it beside remora-lab, or run from the source tree")
		}
		dir = parent
	}
}
