package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/remora-proxy/remora/docs"
	"github.com/remora-proxy/remora/proxy/certs"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/sidecar"
)

// newCheck returns the command "remora check", which prints all errors of a
// configuration file.
func newCheck() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "check FILE",
		Short: "Check a configuration file",
		Long: "Check a configuration file, with the certificates and keys that it names, and print each error as\n" +
			"file:line:column: key: text. Warnings are about keys without an effect; the file is valid all the same.\n" +
			"No connection is made and no port is opened.",
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) == 1 && file == "":
				file = args[0]
			case len(args) > 0 || file == "":
				return errors.New("expected one configuration file, as in remora check FILE")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := load(cmd, file, checkFiles)
			if err != nil {
				return err
			}
			for _, w := range cfg.Warnings {
				fmt.Fprintln(cmd.ErrOrStderr(), w)
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), summary(cfg))
			return err
		},
	}
	cmd.Flags().StringVarP(&file, "config", "c", "", "configuration file (YAML), instead of FILE")
	return cmd
}

// summary returns what a valid configuration has: "ok: 2 listeners, 1 route, 1 service".
func summary(c *config.Config) string {
	counts := []string{
		counted(len(c.Listeners), "listener"), counted(len(c.Routes), "route"), counted(len(c.Services), "service"),
	}
	if n := len(c.Warnings); n > 0 {
		counts = append(counts, counted(n, "warning"))
	}
	return "ok: " + strings.Join(counts, ", ")
}

func counted(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// newSchema returns the command "remora schema", which prints the schema of configuration files.
func newSchema() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of configuration files",
		Long: "Print the JSON Schema (draft 2020-12) of configuration files. Editors with a YAML language server use it with\n" +
			"this first line of a configuration:\n\n" +
			"  # yaml-language-server: $schema=remora.schema.json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := cmd.OutOrStdout().Write(docs.Schema)
			return err
		},
	}
}

// checkFiles checks the files of all tls blocks.
func checkFiles(c *config.Config, report func(path, text string)) {
	for _, b := range c.TLSBlocks() {
		for _, f := range certs.Check(sidecar.CertOptions(&b), time.Now()) {
			report(b.Path+"."+f.Key, f.Err.Error())
		}
	}
}

// load reads the configuration, and prints its errors.
func load(cmd *cobra.Command, file string, more ...config.Inspect) (*config.Config, error) {
	cfg, err := config.Load(file, more...)
	var errs config.Errors
	if !errors.As(err, &errs) {
		return cfg, err
	}
	return nil, report(cmd, errs)
}

// report prints the errors of a file, and returns the error of the command.
func report(cmd *cobra.Command, errs config.Errors) error {
	for _, e := range errs {
		fmt.Fprintln(cmd.ErrOrStderr(), e)
	}
	return reported{}
}
