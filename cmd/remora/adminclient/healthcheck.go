package adminclient

import (
	"net/http"
	"time"

	"github.com/spf13/cobra"
)

// healthcheckTimeout bounds a health check. It is longer than /readyz itself may take.
const healthcheckTimeout = 3 * time.Second

// NewHealthcheck returns the command "remora healthcheck". With it, container images
// need no other HTTP client.
func NewHealthcheck(load Load) *cobra.Command {
	flags := Flags{Load: load}
	var live bool
	cmd := &cobra.Command{
		Use:   "healthcheck [--admin ADDR | -c FILE] [--live]",
		Short: "Ask a running sidecar whether it is ready",
		Long: "Ask the admin API of a running sidecar whether it is ready for traffic (/readyz), or with --live whether\n" +
			"it is alive (/healthz). Exits with 0 if it is, and with 1 and the reasons if not.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			at, err := flags.API(cmd)
			if err != nil {
				return err
			}
			at.Token = "" // probes carry no secrets
			path := "/readyz"
			if live {
				path = "/healthz"
			}
			transport := Transport(at.Address)
			transport.DisableKeepAlives = true
			client := http.Client{Timeout: healthcheckTimeout, Transport: transport}
			_, err = Get(cmd.Context(), &client, at, path)
			return err
		},
	}
	cmd.Flags().BoolVar(&live, "live", false, "ask /healthz, whether it is alive")
	flags.Add(cmd, "configuration file with the address")
	return cmd
}
