package main

import (
	"context"
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
			at, err := adminOf(cmd, addr, file)
			if err != nil {
				return err
			}
			path := "/readyz"
			if live {
				path = "/healthz"
			}
			client := http.Client{
				Timeout: healthcheckTimeout, Transport: &http.Transport{DisableKeepAlives: true},
			}
			// Without the token: probes carry no secrets.
			_, err = getAdmin(cmd.Context(), &client, at.Address, "", path)
			return err
		},
	}
	cmd.Flags().BoolVar(&live, "live", false, "ask /healthz, whether it is alive")
	adminFlags(cmd, &addr, &file, "configuration file with the address")
	return cmd
}

// adminFlags adds the flags that say where the admin API is. usage is that of --config.
func adminFlags(cmd *cobra.Command, addr, file *string, usage string) {
	cmd.Flags().StringVar(addr, "admin", config.Default().Admin.Address, "address of the admin API")
	cmd.Flags().StringVarP(file, "config", "c", "", usage)
	cmd.MarkFlagsMutuallyExclusive("admin", "config")
}

// adminOf returns the admin API of the configuration in file or, without a file, the one
// at addr, without a token.
func adminOf(cmd *cobra.Command, addr, file string) (config.Admin, error) {
	if file == "" {
		return config.Admin{Address: addr}, nil
	}
	cfg, err := load(cmd, file)
	if err != nil {
		return config.Admin{}, err
	}
	if cfg.Admin.Address == "" {
		return config.Admin{}, errors.New("the configuration has no admin.address")
	}
	return cfg.Admin, nil
}

// maxResponse bounds a response of the admin API, in bytes.
const maxResponse = 64 << 20

// getAdmin returns the body of a response of the admin API at addr. Its error has the
// body unless the status is 200. An empty token is not sent.
func getAdmin(ctx context.Context, client *http.Client, addr, token, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+path, nil)
	if err != nil {
		return nil, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse))
	if resp.StatusCode != http.StatusOK {
		text := strings.TrimSpace(string(body))
		err = errors.Join(fmt.Errorf("%s%s: %s: %s", addr, path, resp.Status, text), err)
	}
	return body, err
}
