package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
)

// ofCopy matches the number of a change in what the compiler says of its copy.
var ofCopy = regexp.MustCompile(copyOf + `(\d+):\d`)

// build compiles the binaries, without the changes that don't compile, and reports of each change whether it does.
func (t *trial) build(ctx context.Context) (compiled []bool, err error) {
	compiled = make([]bool, len(t.changes))
	for i := range compiled {
		compiled[i] = true
	}
	for {
		output, err := t.compile(ctx, compiled)
		if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || ctx.Err() != nil {
			return compiled, err
		}
		found := ofCopy.FindAllSubmatch(output, -1)
		if found == nil {
			return nil, fmt.Errorf("%s: %w:\n%s", t.p.folder, err, output)
		}
		for _, match := range found {
			number, err := strconv.Atoi(string(match[1]))
			if err != nil {
				return nil, err
			}
			compiled[number-1] = false
		}
	}
}

// compile makes a binary for each folder with tests. It has copies of the wanted changes.
func (t *trial) compile(ctx context.Context, wanted []bool) (output []byte, err error) {
	changes := make(map[string]map[int]*change) // by file and number
	for i, c := range t.changes {
		if wanted[i] && canCopy(c.of) {
			if changes[c.file] == nil {
				changes[c.file] = make(map[int]*change)
			}
			changes[c.file][i+1] = c
		}
	}
	sources := map[string][]byte{filepath.Join(t.p.folder, extraFile): extraSource(t.p.name, len(t.changes))}
	for file, of := range changes {
		sources[file] = withCopies(t.sources[file], of, t.functions)
	}
	overlay, err := t.overlay(sources)
	if err != nil {
		return nil, err
	}
	t.binaries = nil
	for i, folder := range t.p.tested() {
		bin := &binary{path: filepath.Join(t.dir, fmt.Sprintf("%d.test", i)), folder: filepath.Join(t.p.module, folder)}
		// With -e the compiler names all faults, and not the first ten.
		cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-gcflags=./"+t.p.folder+"=-e", "-overlay", overlay, "-o", bin.path, "./"+folder)
		cmd.Dir = t.p.module
		if output, err = cmd.CombinedOutput(); err != nil {
			return output, err
		}
		if _, err := os.Stat(bin.path); err == nil { // else the package has no tests
			t.binaries = append(t.binaries, bin)
		}
	}
	return nil, nil
}

// overlay writes sources, and the file that tells the go command to read each in the place of the file that has its path in the module. No
// file of the module changes.
func (t *trial) overlay(sources map[string][]byte) (path string, err error) {
	dir, err := os.MkdirTemp(t.dir, "")
	if err != nil {
		return "", err
	}
	places := make(map[string]string)
	for file, source := range sources {
		place := filepath.Join(dir, fmt.Sprintf("%d.go", len(places)))
		places[filepath.Join(t.p.module, file)] = place
		if err := os.WriteFile(place, source, 0o600); err != nil {
			return "", err
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": places})
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, text, 0o600)
}
