// Command remora is the sidecar, and the tools beside it.
//
// "remora run" loads the configuration, or makes one of its flags (package starter), and runs
// package sidecar. The other commands check a configuration, try its routes, or ask a running
// sidecar by its admin API (packages adminclient and top).
package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/remora-proxy/remora/cmd/remora/adminclient"
	"github.com/remora-proxy/remora/cmd/remora/fleet"
	"github.com/remora-proxy/remora/cmd/remora/inject"
	"github.com/remora-proxy/remora/cmd/remora/starter"
	"github.com/remora-proxy/remora/cmd/remora/top"
	"github.com/remora-proxy/remora/internal/printable"
)

// Exit codes.
const (
	exitFailed = 1 // the command did not succeed
	exitUsage  = 2 // the command line is wrong
)

func main() { os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr)) }

// reported is the error of a command that has already printed its errors.
type reported struct{}

func (reported) Error() string { return "" }

// failure is the error of a command that failed although its command line was right:
// exit code 1. Any other error is an error of usage.
type failure struct{ error }

func (f failure) Unwrap() error { return f.error }

// commandsOfTags are commands that only a program with a build tag has.
var commandsOfTags []func() *cobra.Command

// newRoot returns the command tree.
func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "remora",
		Short:         "A sidecar proxy that keeps tail latency down",
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return fmt.Errorf("expected a command; %s --help lists them", cmd.CommandPath())
		},
	}
	root.Version = versionOf(version, buildInfo()) // adds --version
	root.SetVersionTemplate(versionLine() + "\n")
	commands := []*cobra.Command{
		newRun(), newCheck(), newSchema(), starter.NewInit(), newVersion(), newRoutes(), top.New(load), fleet.New(load, report), inject.New(),
		adminclient.NewHealthcheck(load), adminclient.NewDrain(load), adminclient.NewProfile(load),
	}
	for _, newCommand := range commandsOfTags {
		commands = append(commands, newCommand())
	}
	for _, cmd := range commands {
		root.AddCommand(failing(cmd))
	}
	return root
}

// failing marks the errors of RunE of a command, and of the commands below it, as failures.
func failing(cmd *cobra.Command) *cobra.Command {
	for _, below := range cmd.Commands() {
		failing(below)
	}
	if run := cmd.RunE; run != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			if err := run(cmd, args); err != nil {
				return failure{err}
			}
			return nil
		}
	}
	return cmd
}

// execute runs one command line and returns its exit code.
func execute(args []string, stdout, stderr io.Writer) int {
	stdout, stderr = display{stdout}, display{stderr}
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.Execute()
	if err == nil {
		return 0
	}
	if !errors.Is(err, reported{}) {
		fmt.Fprintf(stderr, "remora: %v\n", err)
	}
	if errors.As(err, new(failure)) {
		return exitFailed
	}
	return exitUsage
}

// display is a writer to a terminal. Names and addresses come from files, from etcd and from other sidecars, and
// may hold control sequences, such as one that sets the clipboard.
type display struct{ io.Writer }

// Write implements io.Writer. A character must not be split over two calls.
func (d display) Write(b []byte) (int, error) {
	if _, err := io.WriteString(d.Writer, printable.Text(string(b), "\n\t")); err != nil {
		return 0, err
	}
	return len(b), nil
}

// Raw returns a writer of bytes as they are, for a command whose output is a file, unless a terminal shows them.
func (d display) Raw() io.Writer {
	if file, ok := d.Writer.(*os.File); ok {
		if info, err := file.Stat(); err != nil || info.Mode()&os.ModeCharDevice != 0 {
			return d
		}
	}
	return d.Writer
}
