package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// verdict is what became of a change.
type verdict string

const (
	noticed    verdict = "noticed"    // a test failed, or took too long
	survived   verdict = "survived"   // all tests passed
	uncompiled verdict = "uncompiled" // the change does not count: it does not compile
)

// trial tries changes of a package.
type trial struct {
	p        *pack
	dir      string            // of temporary files
	sources  map[string][]byte // by path in the module
	changes  []*change         // their numbers count from 1
	binaries []*binary         // of the package's tests, and of each tester's
}

// try finds what becomes of changes of a package, so many at a time, and tells done of each, from any goroutine.
func try(ctx context.Context, p *pack, changes []*change, jobs int, done func(*change, verdict) error) error {
	t := &trial{p: p, changes: changes}
	var err error
	if t.sources, err = p.sources(); err != nil {
		return err
	}
	if t.dir, err = os.MkdirTemp("", "mutate-"); err != nil {
		return err
	}
	defer os.RemoveAll(t.dir)
	compiled, err := t.build(ctx)
	if err != nil {
		return err
	}
	for _, bin := range t.binaries {
		if err := bin.measure(ctx); err != nil {
			return err
		}
	}
	var workers sync.WaitGroup
	var next atomic.Int64
	errs := make([]error, jobs)
	for worker := range jobs {
		workers.Go(func() {
			for errs[worker] == nil {
				i := int(next.Add(1)) - 1
				if i >= len(changes) {
					return
				}
				v := uncompiled
				if compiled[i] {
					v, errs[worker] = t.try(ctx, i+1)
				}
				if errs[worker] == nil {
					errs[worker] = done(changes[i], v)
				}
			}
		})
	}
	workers.Wait()
	return errors.Join(errs...)
}

// binary has the tests of one package.
type binary struct {
	path, folder string
	limits       limits
	// alone matches the tests that fail because the binary has copies, "" none: a function that calls copies is not inlined, so what
	// counts allocations may fail. Such tests are compiled with each change alone.
	alone string
}

// run runs the tests with a change, or without for 0.
func (bin *binary) run(ctx context.Context, number int, flags ...string) (*ended, error) {
	args := append([]string{bin.path, "-test.short", "-test.timeout=0"}, flags...)
	if bin.alone != "" {
		args = append(args, "-test.skip", bin.alone)
	}
	return execute(ctx, bin.folder, bin.limits, fmt.Sprintf("%s=%d", chooser, number), args...)
}

// runAlone compiles tests without copies and runs them. The names of the tests match a pattern.
func (bin *binary) runAlone(ctx context.Context, pattern string, flags ...string) (*ended, error) {
	args := []string{"go", "test", "-count=1", "-short", "-failfast", "-vet=off", "-timeout=0", "-run", pattern}
	return execute(ctx, bin.folder, limits{bin.limits.cpu + mostCompile, bin.limits.wall + mostCompile}, chooser+"=0", append(append(args, flags...), ".")...)
}

// measure runs the tests without a change: they must pass, if need be alone.
func (bin *binary) measure(ctx context.Context) error {
	bin.limits = limits{time.Hour, time.Hour}
	tests, err := bin.run(ctx, 0)
	if err != nil {
		return err
	}
	bin.limits = limits{max(most*tests.cpu, leastCPU), max(most*tests.wall, leastWall)}
	if tests.passed {
		return nil
	}
	var names []string
	for line := range strings.Lines(string(tests.output)) {
		if name, ok := strings.CutPrefix(line, "--- FAIL: "); ok {
			name, _, _ = strings.Cut(name, " ")
			names = append(names, name)
		}
	}
	bin.alone = "^(" + strings.Join(names, "|") + ")$"
	tests, err = bin.runAlone(ctx, bin.alone)
	if err == nil && tests.passed {
		tests, err = bin.run(ctx, 0)
	}
	if err == nil && !tests.passed {
		err = fmt.Errorf("%s: the tests fail without a change:\n%s", bin.folder, tests.output)
	}
	return err
}

// try tries a change that compiles in copies.
func (t *trial) try(ctx context.Context, number int) (verdict, error) {
	c := t.changes[number-1]
	for _, bin := range t.binaries {
		pattern := bin.alone
		if canCopy(c.of) {
			if tests, err := bin.run(ctx, number, "-test.failfast"); err != nil || !tests.passed {
				return noticed, err
			}
		} else {
			pattern = "."
		}
		if pattern == "" {
			continue
		}
		overlay, err := t.overlay(map[string][]byte{c.file: c.apply(t.sources[c.file])})
		if err != nil {
			return "", err
		}
		tests, err := bin.runAlone(ctx, pattern, "-overlay", overlay)
		switch {
		case err != nil:
			return "", err
		case bytes.Contains(tests.output, []byte("[build failed]")):
			return uncompiled, nil
		case !tests.passed:
			return noticed, nil
		}
	}
	return survived, nil
}
