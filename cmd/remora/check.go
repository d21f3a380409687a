package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/remora-proxy/remora/proxy/certs"
	"github.com/remora-proxy/remora/proxy/config"
)

// newCheck returns the command "remora check", which prints all errors of a
// configuration file.
func newCheck() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "check -c FILE",
		Short: "Check a configuration file",
		Long: "Check a configuration file, with the certificates and keys that it names, and print each error as\n" +
			"file:line:column: key: text. No connection is made and no port is opened.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := load(cmd, file, checkFiles)
			return err
		},
	}
	configFlag(cmd, &file)
	return cmd
}

// checkFiles checks the files of all tls blocks.
func checkFiles(c *config.Config, report func(path, text string)) {
	for _, b := range c.TLSBlocks() {
		for _, f := range certs.Check(certs.Options{Cert: b.TLS.Cert, Key: b.TLS.Key, CA: b.TLS.CA, CRL: b.TLS.CRL}, time.Now()) {
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
