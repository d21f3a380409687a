package steal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMain lets the tests start their own binary as the process that watches.
func TestMain(m *testing.M) {
	switch os.Getenv("STEAL_TEST") {
	case "":
		os.Exit(m.Run())
	case "watch":
		if err := Print(context.Background(), Period, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	default:
		fmt.Println(os.Getenv("STEAL_TEST"))
	}
}

// record returns what is found while nothing is done.
func record(t *testing.T, as string) ([]Stop, error) {
	t.Helper()
	t.Setenv("STEAL_TEST", as)
	return Watch(func() error { return nil }, os.Args[0])
}

// allowed reports whether this process may take real-time priority.
func allowed(t *testing.T) bool {
	t.Helper()
	var header = unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		t.Fatal(err)
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_RTPRIO, &limit); err != nil {
		t.Fatal(err)
	}
	return data[0].Effective&(1<<unix.CAP_SYS_NICE) != 0 || limit.Cur > 0
}

func TestWatcherStop(t *testing.T) {
	stops, err := record(t, "watch")
	if !allowed(t) {
		if err == nil || !strings.Contains(err.Error(), "operation not permitted") {
			t.Errorf("without CAP_SYS_NICE: %v", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range stops {
		if s.To.Sub(s.From) < Least {
			t.Errorf("reported %+v", s)
		}
	}
}

// watching is the first line of Print.
const watching = `{"watching":true}`

func TestWatcherCollectsStops(t *testing.T) {
	const line = `{"cpu":3,"from":"2026-01-02T03:04:05Z","to":"2026-01-02T03:04:05.5Z"}`
	stops, err := record(t, watching+"\n"+line+"\n"+line)
	if err != nil || len(stops) != 2 || stops[0].CPU != 3 || stops[1].To.Sub(stops[1].From).Milliseconds() != 500 {
		t.Errorf("%+v, %v", stops, err)
	}
	// The lines are more than a pipe holds. The process must end although nobody reads them.
	if _, err := record(t, watching+"\nnonsense"+strings.Repeat("\n"+line, 1200)); err == nil || !strings.Contains(err.Error(), "output of the watcher") {
		t.Errorf("a line that is no stop: %v", err)
	}
}

// TestStartFails starts processes that end at once, or whose first line is wrong.
func TestStartFails(t *testing.T) {
	never := func() error {
		t.Error("nothing watches, and the work was done")
		return nil
	}
	for _, says := range []string{" ", "{}\n" + watching} {
		t.Setenv("STEAL_TEST", says)
		if _, err := Watch(never, os.Args[0]); err == nil {
			t.Errorf("%q: no error", says)
		}
	}
	for _, program := range []string{"/bin/true", "/no/such"} {
		if _, err := Watch(never, program); err == nil {
			t.Errorf("%s: no error", program)
		}
	}
}

func TestWatchReturnsBothResults(t *testing.T) {
	t.Setenv("STEAL_TEST", watching+"\n{}")
	failure := errors.New("failed")
	stops, err := Watch(func() error { return failure }, os.Args[0])
	if !errors.Is(err, failure) || len(stops) != 1 {
		t.Errorf("%+v, %v", stops, err)
	}
}

// TestPrintEndsWithItsContext checks that the end of the context is no error, with the
// privilege or without.
func TestPrintEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := Print(ctx, Period, strings.NewReader(""), io.Discard); err != nil {
		t.Error(err)
	}
}
