package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/remora-proxy/remora/proxy/config"
)

// newCheck is "remora check": everything wrong with a file, one error per line.
func newCheck() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "check -c FILE",
		Short: "Check a configuration file",
		Long:  "Check a configuration file and print every error in it as file:line:column: key: text.",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := load(cmd, file)
			return err
		},
	}
	configFlag(cmd, &file)
	return cmd
}

// load reads the configuration, and prints all that is wrong with it.
func load(cmd *cobra.Command, file string) (*config.Config, error) {
	cfg, err := config.Load(file)
	var errs config.Errors
	if !errors.As(err, &errs) {
		return cfg, err
	}
	for _, e := range errs {
		fmt.Fprintln(cmd.ErrOrStderr(), e)
	}
	return nil, reported{}
}

// configFlag adds the flag that names the configuration file.
func configFlag(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVarP(file, "config", "c", "", "configuration file (YAML)")
	if err := cmd.MarkFlagRequired("config"); err != nil {
		panic(err) // the flag was defined one line above
	}
}
