package main

import (
	"bytes"
	"context"
	"errors"
	"go/ast"
	"os"
	"sync"
	"sync/atomic"
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
	p         *pack
	dir       string                // of temporary files
	sources   map[string][]byte     // by path in the module
	changes   []*change             // their numbers count from 1
	functions map[*ast.FuncDecl]int // their numbers
	binaries  []*binary             // of the package's tests, and of each tester's
}

// try finds what becomes of changes of a package, so many at a time, and tells done of each, from any goroutine.
func try(ctx context.Context, p *pack, changes []*change, jobs int, done func(*change, verdict) error) error {
	t := &trial{p: p, changes: changes, functions: functionNumbers(changes)}
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
		if err := bin.measure(ctx, t.dir, jobs); err != nil {
			return err
		}
	}
	return each(jobs, len(changes), func(i int) (err error) {
		v := uncompiled
		if compiled[i] {
			v, err = t.try(ctx, i+1)
		}
		if err != nil {
			return err
		}
		return done(changes[i], v)
	})
}

// each calls f with the numbers below n, so many at a time, until a call fails.
func each(jobs, n int, f func(i int) error) error {
	var workers sync.WaitGroup
	var next atomic.Int64
	errs := make([]error, jobs)
	for worker := range jobs {
		workers.Go(func() {
			for errs[worker] == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				errs[worker] = f(i)
			}
		})
	}
	workers.Wait()
	return errors.Join(errs...)
}

// try tries a change that compiles in copies.
func (t *trial) try(ctx context.Context, number int) (verdict, error) {
	c := t.changes[number-1]
	for _, bin := range t.binaries {
		if !canCopy(c.of) {
			if v, err := t.tryAlone(ctx, c, bin, "."); v != survived {
				return v, err
			}
			continue
		}
		quick, slow, alone := bin.callers(t.functions[c.of])
		for _, tests := range [][]*test{quick, slow} {
			if len(tests) == 0 {
				continue
			}
			if ran, err := bin.run(ctx, number, tests, "", "-test.failfast"); err != nil || !ran.passed {
				return noticed, err
			}
		}
		if len(alone) > 0 {
			if v, err := t.tryAlone(ctx, c, bin, pattern(alone)); v != survived {
				return v, err
			}
		}
	}
	return survived, nil
}

// tryAlone tries a change that is compiled alone, with tests whose names match a pattern.
func (t *trial) tryAlone(ctx context.Context, c *change, bin *binary, pattern string) (verdict, error) {
	overlay, err := t.overlay(map[string][]byte{c.file: c.apply(t.sources[c.file])})
	if err != nil {
		return "", err
	}
	ran, err := bin.runAlone(ctx, pattern, "-overlay", overlay)
	switch {
	case err != nil:
		return "", err
	case ran.passed:
		return survived, nil
	case bytes.Contains(ran.output, []byte("[build failed]")):
		return uncompiled, nil
	}
	return noticed, nil
}
