package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/remora-proxy/remora/proxy/admin"
	"github.com/remora-proxy/remora/proxy/config"
)

// runtimeDir is where the socket of a hot restart is by default, a directory that
// belongs to this process's user: that of the service manager, of the session, or
// one of our own.
func runtimeDir() string {
	if dirs := os.Getenv("RUNTIME_DIRECTORY"); dirs != "" { // systemd.exec(5)
		first, _, _ := strings.Cut(dirs, ":")
		return first
	}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		return filepath.Join(dir, "remora")
	}
	if os.Geteuid() == 0 {
		return "/run/remora"
	}
	return filepath.Join(os.TempDir(), fmt.Sprintf("remora-%d", os.Geteuid()))
}

// doorPath is the same for a process and the one that is to take its place, and for
// no other in this directory: they have the same file, and of what it says the same
// that no reload changes and no two processes share, in the same network. Without a
// directory it is empty.
func doorPath(dir, file string, cfg *config.Config) string {
	if dir == "" {
		return ""
	}
	if abs, err := filepath.Abs(file); err == nil { // not resolved: a link is swapped with each new content
		file = abs
	}
	network, _ := os.Readlink("/proc/self/ns/net")
	sum := sha256.Sum256([]byte(strings.Join([]string{file, cfg.Node.ID, cfg.Admin.Address, network}, "\x00")))
	return filepath.Join(dir, hex.EncodeToString(sum[:8])+".sock")
}

// Why a process can't be replaced.
var (
	errNoDoor  = errors.New("this process can't hand over its sockets; see the log of its start")
	errLeaving = errors.New("the sidecar is draining, or was replaced")
)

// followRestarts starts a successor whenever asked to, one at a time, until the
// sidecar ends.
func (s *sidecar) followRestarts(asked <-chan os.Signal) {
	for {
		select {
		case <-asked:
			if err := s.startSuccessor(); err != nil {
				s.log.Error("not replaced", "error", err)
			}
		case <-s.ended.Done():
			return
		}
	}
}

// startSuccessor runs this program as it was called, from where it was called: what
// is there now may be a newer version. It returns when that has ended; one that takes
// over outlives this process.
func (s *sidecar) startSuccessor() error {
	if s.door == nil {
		return errNoDoor
	}
	if s.admin.Phase() > admin.Serving {
		return errLeaving // the new process would find nobody here, or replace the one that did so
	}
	program, err := exec.LookPath(os.Args[0])
	if err != nil {
		return err
	}
	cmd := exec.Command(program, os.Args[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	s.log.Info("successor started", "pid", cmd.Process.Pid, "program", program)
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("the successor has ended: %w", err)
	}
	return nil
}
