package harness

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/internal/racetest"
)

// racy is a program with a data race, which does not end.
const racy = `package main

import "time"

func main() {
	x := 0
	go func() { x++ }()
	x++
	time.Sleep(time.Hour)
}
`

// TestHasRace: a report of the race detector is noticed in the log of a process that is killed.
func TestHasRace(t *testing.T) {
	if !racetest.Enabled {
		t.Skip("needs the race detector")
	}
	dir := t.TempDir()
	must.WriteFile(t, filepath.Join(dir, "main.go"), racy)
	program := filepath.Join(dir, "racy")
	if _, err := output("go", "build", "-race", "-o", program, filepath.Join(dir, "main.go")); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(program)
	cmd.Stdout, cmd.Stderr = log, log
	written := logFile{log.Name()}
	if written.hasRace() {
		t.Error("a race in an empty log")
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Wait() }()
	defer func() { _ = cmd.Process.Kill() }()
	eventually.True(t, "the report", written.hasRace)
}
