package harness

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/remora-proxy/remora/internal/racetest"
)

// program is the package of the program under test.
const program = "github.com/remora-proxy/remora/cmd/remora"

// Binary is the path of the program under test. Main sets it.
var Binary string

// mix says which sidecars run another program. Main sets it.
var mix mixing

// Main builds the program and runs the tests of a package. TestMain calls it.
func Main(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	dir, err := os.MkdirTemp("", "remora-test-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	os.Setenv("RUNTIME_DIRECTORY", dir) // for the sockets of hot restarts
	if name := os.Getenv("ENGINE"); name != "" {
		os.Setenv(EngineVariable, name)
	}
	if Binary, err = build(dir); err != nil {
		return 0, err
	}
	if mix, err = readMixing(); err != nil {
		return 0, err
	}
	if err := watchSources(); err != nil {
		return 0, err
	}
	return m.Run(), nil
}

// build builds the program, with the race detector if the tests have it, and returns a path in
// dir. The packages of tests share a file in the module's bin folder, because go build links only
// a file that is out of date. A hard link in dir keeps the program of this process when another
// process builds a newer one.
func build(dir string) (path string, err error) {
	module, err := output("go", "env", "GOMOD")
	if err != nil {
		return "", err
	}
	shared, flags := filepath.Join(filepath.Dir(module), "bin", "e2e", "remora"), []string{"build"}
	if racetest.Enabled {
		shared, flags = shared+"-race", append(flags, "-race")
	}
	if err := os.MkdirAll(filepath.Dir(shared), 0o755); err != nil {
		return "", err
	}
	lock, err := os.Create(shared + ".lock")
	if err != nil {
		return "", err
	}
	defer lock.Close() // unlocks
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", os.NewSyscallError("flock", err)
	}
	if _, err := output("go", append(flags, "-o", shared, program)...); err != nil {
		return "", err
	}
	path = filepath.Join(dir, "remora")
	if err := os.Link(shared, path); errors.Is(err, syscall.EXDEV) {
		_, err = output("cp", shared, path)
		return path, err
	} else if err != nil {
		return "", err
	}
	return path, nil
}

// watchSources opens the folders that the program is built of. The go command takes note of what a
// test opens, so it runs these tests again after a change of the program, which they do not
// import.
func watchSources() error {
	dirs, err := output("go", "list", "-deps", "-f", "{{with .Module}}{{if .Main}}{{$.Dir}}{{end}}{{end}}", program)
	if err != nil {
		return err
	}
	for _, dir := range strings.Fields(dirs) {
		f, err := os.Open(dir)
		if err != nil {
			return err
		}
		f.Close()
	}
	return nil
}

// output returns what a command prints. The error has what it says on standard error.
func output(name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, said.String())
	}
	return strings.TrimSpace(string(out)), nil
}

// Run runs a command of the program, and returns its exit code and output.
func Run(name string, args ...string) (code int, output string) {
	cmd := exec.Command(Binary, append([]string{name}, args...)...)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		return -1, err.Error()
	}
	return cmd.ProcessState.ExitCode(), string(out)
}
