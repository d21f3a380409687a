package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/remora-proxy/remora/proxy/config"
)

// healthcheckTimeout bounds a health check. It is longer than /readyz itself may take.
const healthcheckTimeout = 3 * time.Second

// newHealthcheck returns the command "remora healthcheck". With it, container images
// need no other HTTP client.
func newHealthcheck() *cobra.Command {
	var addr, file string
	var live bool
	cmd := &cobra.Command{
		Use:   "healthcheck [--admin ADDR | -c FILE] [--live]",
		Short: "Ask a running sidecar whether it is ready",
		Long: "Ask the admin API of a running sidecar whether it is ready for traffic (/readyz), or with --live whether\n" +
			"it is alive (/healthz). Exits with 0 if it is, and with 1 and the reasons if not.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file != "" {
				cfg, err := load(cmd, file)
				if err != nil {
					return err
				}
				if addr = cfg.Admin.Address; addr == "" {
					return errors.New("the configuration has no admin.address")
				}
			}
			path := "/readyz"
			if live {
				path = "/healthz"
			}
			return healthcheck(addr, path)
		},
	}
	cmd.Flags().StringVar(&addr, "admin", config.Default().Admin.Address, "address of the admin API")
	cmd.Flags().StringVarP(&file, "config", "c", "", "configuration file with the address")
	cmd.Flags().BoolVar(&live, "live", false, "ask /healthz, whether it is alive")
	cmd.MarkFlagsMutuallyExclusive("admin", "config")
	return cmd
}

func healthcheck(addr, path string) error {
	client := http.Client{Timeout: healthcheckTimeout, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + addr + path)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s%s: %s: %s", addr, path, resp.Status, strings.TrimSpace(string(body)))
	}
	return nil
}
