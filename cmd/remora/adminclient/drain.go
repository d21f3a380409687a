package adminclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/remora-proxy/remora/proxy/config"
)

const (
	// drainInterval is the time between two questions whether a drain has ended.
	drainInterval = 100 * time.Millisecond

	// drainRequest bounds one request. It is longer than the admin API itself may take.
	drainRequest = 5 * time.Second
)

// NewDrain returns the command "remora drain". With it, a container's preStop needs no shell.
func NewDrain(load Load) *cobra.Command {
	flags := Flags{Load: load}
	var wait bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "drain [--admin ADDR | -c FILE] [--wait [--timeout TIME]]",
		Short: "Take a running sidecar out of use",
		Long: "Start the drain of a running sidecar by its admin API (POST /drain): it leaves the registry, closes its\n" +
			"listeners and finishes what is in flight, for at most its timeouts.drain. The process stays until SIGTERM.\n" +
			"With --wait the command ends when the drain has ended. It exits with 1 if there is no sidecar, or if it\n" +
			"is not drained within --timeout.\n\n" +
			"If admin.token is set, the token comes from the configuration file or from $" + TokenVariable + ".",
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case cmd.Flags().Changed("timeout") && !wait:
				return errors.New("--timeout needs --wait")
			case timeout < 0:
				return fmt.Errorf("--timeout: expected a time such as 30s, got %s", timeout)
			}
			return cobra.NoArgs(cmd, args)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			at, err := flags.API(cmd)
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			return drain(ctx, at, wait, timeout, cmd.OutOrStdout())
		},
	}
	cmd.Flags().BoolVar(&wait, "wait", false, "wait for the end of the drain")
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "longest wait; 0 means until timeouts.drain of the sidecar has passed")
	flags.Add(cmd, "configuration file with address and token")
	return cmd
}

// drain starts the drain of the sidecar, and prints the phase it is in then.
func drain(ctx context.Context, at config.Admin, wait bool, timeout time.Duration, out io.Writer) error {
	client := http.Client{Timeout: drainRequest, Transport: Transport(at.Address)}
	body, err := call(ctx, &client, at, http.MethodPost, "/drain", http.StatusAccepted)
	if err != nil {
		return explain(err, at)
	}
	phase := strings.TrimSpace(string(body))
	if wait {
		phase, err = awaitDrained(ctx, &client, at, timeout)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, phase)
	return err
}

// nobodyListens reports whether nothing listens at an address, or its Unix socket is gone.
func nobodyListens(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENOENT)
}

// explain adds to an error what to do about it.
func explain(err error, at config.Admin) error {
	var refused *statusError
	switch {
	case nobodyListens(err):
		return fmt.Errorf("no sidecar has its admin API at %s: %w", at.Address, err)
	case errors.As(err, &refused) && refused.code == http.StatusUnauthorized:
		return fmt.Errorf("%w; admin.token comes from -c FILE or from $%s", err, TokenVariable)
	}
	return err
}

// awaitDrained waits until the drain has ended, or the process: then its drain was its last work.
func awaitDrained(ctx context.Context, client *http.Client, at config.Admin, timeout time.Duration) (phase string, err error) {
	at.Token = "" // /readyz needs none
	var late <-chan time.Time
	if timeout > 0 {
		late = time.After(timeout)
	}
	next := time.Tick(drainInterval)
	for {
		body, err := call(ctx, client, at, http.MethodGet, "/readyz", http.StatusServiceUnavailable)
		phase = strings.TrimSpace(string(body))
		switch {
		case nobodyListens(err):
			return "ended", nil
		case errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF): // it is ending
		case err != nil:
			return "", err
		case phase == "drained":
			return phase, nil
		}
		select {
		case <-next:
		case <-late:
			return "", fmt.Errorf("%s: not drained after %s: %s", at.Address, timeout, phase)
		case <-ctx.Done():
			return "", fmt.Errorf("%s: interrupted: %s", at.Address, phase)
		}
	}
}
