package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// verdict is what became of a change.
type verdict string

const (
	noticed    verdict = "noticed"    // a test failed, or took too long
	survived   verdict = "survived"   // all tests passed
	uncompiled verdict = "uncompiled" // the change does not count: it does not compile
)

// slowest is how long the tests of a changed package may take, in times of how long they take without a change, and at
// least leastTime.
const (
	slowest   = 5
	leastTime = 30 * time.Second
)

// tests runs the tests of a package.
type tests struct {
	module  string   // path of the folder
	folders []string // of the packages that have the tests, in the module
	limit   time.Duration
}

// limited runs a command with at most 8 GiB of addresses: a change may make a loop that allocates for ever.
const limited = `ulimit -v 8388608; exec "$@"`

// newTests runs the tests without a change: they must pass.
func newTests(ctx context.Context, module string, folders []string) (*tests, error) {
	t := &tests{module: module, folders: folders, limit: time.Hour}
	begin := time.Now()
	passed, output, err := t.run(ctx)
	if err != nil {
		return nil, err
	}
	if !passed {
		return nil, fmt.Errorf("%s: the tests fail without a change:\n%s", folders[0], output)
	}
	t.limit = max(slowest*time.Since(begin), leastTime)
	return t, nil
}

// run runs the tests of one folder after another with further flags, until some fail.
func (t *tests) run(ctx context.Context, flags ...string) (passed bool, output []byte, err error) {
	for _, folder := range t.folders {
		if passed, output, err = t.runOf(ctx, folder, flags); !passed {
			break
		}
	}
	return passed, output, err
}

func (t *tests) runOf(ctx context.Context, folder string, flags []string) (passed bool, output []byte, err error) {
	args := []string{"-c", limited, "sh", "go", "test", "-count=1", "-short", "-failfast", "-vet=off", "-timeout", t.limit.String()}
	cmd := exec.CommandContext(ctx, "sh", append(append(args, flags...), "./"+folder)...)
	cmd.Dir = t.module
	output, err = cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && ctx.Err() == nil {
		return false, output, nil
	}
	return err == nil, output, err
}

// try runs the tests with a change. The file stays as it is: the compiler reads another in its place.
func (t *tests) try(ctx context.Context, c *change) (verdict, error) {
	dir, err := os.MkdirTemp("", "mutate-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(t.module, c.file)
	source, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	changed, overlay := filepath.Join(dir, filepath.Base(path)), filepath.Join(dir, "overlay.json")
	names, err := json.Marshal(map[string]map[string]string{"Replace": {path: changed}})
	if err != nil {
		return "", err
	}
	if err := errors.Join(os.WriteFile(changed, c.apply(source), 0o600), os.WriteFile(overlay, names, 0o600)); err != nil {
		return "", err
	}
	passed, output, err := t.run(ctx, "-overlay", overlay)
	switch {
	case err != nil:
		return "", err
	case passed:
		return survived, nil
	case bytes.Contains(output, []byte("[build failed]")):
		return uncompiled, nil
	}
	return noticed, nil
}
