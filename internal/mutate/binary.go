package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// binary has the tests of one package.
type binary struct {
	path, folder string
	tests        []*test // by the time that they compute
}

// test is one test of a binary, without a change.
type test struct {
	name      string
	calls     map[int]bool // the numbers of functions that it calls
	cpu, wall time.Duration

	// alone means that the test fails because the binary has copies: a function that calls copies is not inlined, so a test that
	// counts allocations may fail. Such a test is compiled with each change alone.
	alone bool
}

// quickly is how long quick tests may compute together. They are tried before the slow ones.
const quickly = time.Second

// callers returns the tests that call a function. At least one of those with copies is quick.
func (bin *binary) callers(function int) (quick, slow, alone []*test) {
	left := quickly
	for _, t := range bin.tests {
		switch {
		case !t.calls[function]:
		case t.alone:
			alone = append(alone, t)
		case t.cpu <= left || quick == nil:
			quick = append(quick, t)
			left -= t.cpu
		default:
			slow = append(slow, t)
		}
	}
	return quick, slow, alone
}

// pattern matches the names of tests.
func pattern(tests []*test) string {
	var names []string
	for _, t := range tests {
		names = append(names, t.name)
	}
	return "^(" + strings.Join(names, "|") + ")$"
}

// run runs tests with a change, or without for 0. A file gets the numbers of the functions that they call, unless its name is "".
func (bin *binary) run(ctx context.Context, number int, tests []*test, called string, flags ...string) (*ended, error) {
	var l limits
	for _, t := range tests {
		l.cpu, l.wall = l.cpu+most*t.cpu, l.wall+most*t.wall
	}
	l.cpu, l.wall = max(l.cpu, leastCPU), max(l.wall, leastWall)
	args := append([]string{bin.path, "-test.short", "-test.timeout=0", "-test.run", pattern(tests)}, flags...)
	return execute(ctx, bin.folder, l, []string{fmt.Sprintf("%s=%d", chooser, number), noter + "=" + called}, args...)
}

// runAlone compiles tests without copies and runs them. Their names match a pattern.
func (bin *binary) runAlone(ctx context.Context, pattern string, flags ...string) (*ended, error) {
	args := []string{"go", "test", "-count=1", "-short", "-failfast", "-vet=off", "-timeout=0", "-run", pattern}
	return execute(ctx, bin.folder, limits{mostAlone, mostAlone}, nil, append(append(args, flags...), ".")...)
}

// measure runs the tests without a change, so many at a time: they must pass, if need be alone.
func (bin *binary) measure(ctx context.Context, dir string, jobs int) error {
	listed, err := execute(ctx, bin.folder, limits{leastWall, leastWall}, nil, bin.path, "-test.list", "^(Test|Fuzz|Example)")
	if err != nil {
		return err
	}
	for name := range strings.Lines(string(listed.output)) {
		bin.tests = append(bin.tests, &test{name: strings.TrimSpace(name), cpu: mostAlone, wall: mostAlone})
	}
	err = each(jobs, len(bin.tests), func(i int) error { return bin.tests[i].measure(ctx, bin, dir) })
	if err != nil {
		return err
	}
	slices.SortStableFunc(bin.tests, func(a, b *test) int { return cmp.Compare(a.cpu, b.cpu) })
	alone := slices.DeleteFunc(slices.Clone(bin.tests), func(t *test) bool { return !t.alone })
	if len(alone) == 0 {
		return nil
	}
	ran, err := bin.runAlone(ctx, pattern(alone))
	if err == nil && !ran.passed {
		err = fmt.Errorf("%s: the tests fail without a change:\n%s", bin.folder, ran.output)
	}
	return err
}

// measure runs the test, and notes what it takes and calls.
func (t *test) measure(ctx context.Context, bin *binary, dir string) error {
	called, err := os.CreateTemp(dir, "called")
	if err != nil {
		return err
	}
	defer called.Close()
	ran, err := bin.run(ctx, 0, []*test{t}, called.Name())
	if err != nil {
		return err
	}
	t.cpu, t.wall, t.alone = ran.cpu, ran.wall, !ran.passed
	numbers, err := os.ReadFile(called.Name())
	if err != nil {
		return err
	}
	t.calls = make(map[int]bool)
	for line := range strings.Lines(string(numbers)) {
		number, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil {
			return err
		}
		t.calls[number] = true
	}
	return nil
}
