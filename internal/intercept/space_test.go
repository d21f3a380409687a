//go:build linux

package intercept

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"

	"golang.org/x/sys/unix"
)

// space is the name of a network namespace: remora-PURPOSE-PID. scripts/harness/spaces.py
// names its own in the same way, so each sweeps away what the other left.
type space string

func newSpace(purpose string) space {
	return space(fmt.Sprintf("remora-%s-%d", purpose, os.Getpid()))
}

const (
	spaces      = "/run/netns" // a file for each namespace
	spacesFiles = "/etc/netns" // ip netns exec puts NAME/hosts in the place of /etc/hosts
)

var ownerOf = regexp.MustCompile(`^remora-.*-(\d+)$`)

// sweep removes the namespaces of processes that were killed.
func sweep() error {
	found, err := os.ReadDir(spaces)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, f := range found {
		owner := ownerOf.FindStringSubmatch(f.Name())
		if owner == nil {
			continue
		}
		if _, err := os.Stat("/proc/" + owner[1]); errors.Is(err, os.ErrNotExist) {
			space(f.Name()).remove()
		}
	}
	return nil
}

// remove removes the namespace, if it exists, with its devices and files.
func (s space) remove() {
	os.RemoveAll(s.files())
	_, _ = execute(context.Background(), "ip", "netns", "del", string(s))
}

// files is the folder of files that programs inside see in /etc.
func (s space) files() string { return filepath.Join(spacesFiles, string(s)) }

// inside runs f on a thread that has entered the namespace. The sockets that f itself
// opens belong to it for good. f must not start processes.
func (s space) inside(f func() error) error {
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer home.Close()
	away, err := os.Open(filepath.Join(spaces, string(s)))
	if err != nil {
		return err
	}
	defer away.Close()
	runtime.LockOSThread()
	if err := unix.Setns(int(away.Fd()), unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return err
	}
	err = f()
	if back := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); back != nil {
		return errors.Join(err, back) // the thread stays locked: no other goroutine may get it
	}
	runtime.UnlockOSThread()
	return err
}
