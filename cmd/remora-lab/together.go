package main

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/remora-proxy/remora/lab/child"
)

func togetherCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "together COMMAND...",
		Short: "Run programs until one of them ends",
		Long: `Run programs until one of them ends: in a container without a shell, an application and its
sidecar.

Each COMMAND is one argument: a program and its arguments, separated by spaces. Once one has
ended, which is an error, or at SIGTERM or Ctrl-C, the others are stopped, the last one first.`,
		Args: cobra.MinimumNArgs(1),
		RunE: runTogether,
	}
}

func runTogether(cmd *cobra.Command, commands []string) error {
	var group child.Group
	defer group.Stop()
	for _, c := range commands {
		words := strings.Fields(c)
		if len(words) == 0 {
			return fmt.Errorf("command %q: want a program", c)
		}
		if _, err := group.Start(nil, filepath.Base(words[0]), words[0], words[1:]...); err != nil {
			return err
		}
	}
	return group.Wait(cmd.Context())
}
