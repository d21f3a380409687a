package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/remora-proxy/remora/proxy/admin"
	"github.com/remora-proxy/remora/proxy/config"
)

const (
	topInterval = time.Second

	// topTimeout bounds a request. It is longer than the admin API itself may take.
	topTimeout = 5 * time.Second

	// tokenVariable is the environment variable with the token of the admin API.
	tokenVariable = "REMORA_ADMIN_TOKEN"
)

// newTop returns the command "remora top": a dashboard in the terminal.
func newTop() *cobra.Command {
	var addr, file string
	var once bool
	cmd := &cobra.Command{
		Use:   "top [--admin ADDR | -c FILE] [--once]",
		Short: "Show the activity of a running sidecar",
		Long: "Show the activity of a running sidecar each second: requests, percentiles, hedges and the gates that stopped\n" +
			"others, endpoints, and the single milliseconds of the last seconds. q or Ctrl-C ends it.\n\n" +
			"If admin.token is set, the token comes from the configuration file or from $" + tokenVariable + ".",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o := observer{addr: addr, token: os.Getenv(tokenVariable), client: http.Client{Timeout: topTimeout}}
			if file != "" {
				cfg, err := load(cmd, file)
				if err != nil {
					return err
				}
				if o.addr, o.token = cfg.Admin.Address, cfg.Admin.Token; o.addr == "" {
					return errors.New("the configuration has no admin.address")
				}
			}
			ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			if once {
				return topOnce(ctx, &o, cmd.OutOrStdout())
			}
			return top(ctx, &o)
		},
	}
	cmd.Flags().StringVar(&addr, "admin", config.Default().Admin.Address, "address of the admin API")
	cmd.Flags().StringVarP(&file, "config", "c", "", "configuration file with address and token")
	cmd.Flags().BoolVar(&once, "once", false, "watch for a second, print one frame, and end")
	cmd.MarkFlagsMutuallyExclusive("admin", "config")
	return cmd
}

// observer reads the admin API at each frame.
type observer struct {
	addr, token string
	client      http.Client

	previous    admin.Stats
	hasPrevious bool
}

// next reads the data of a frame. It returns nil if there is nothing to compare with:
// the first time, and after a restart of the sidecar.
func (o *observer) next(ctx context.Context) (f *frame, err error) {
	now := frame{before: o.previous}
	if err := o.get(ctx, "/stats", &now.now); err != nil {
		return nil, err
	}
	if err := o.get(ctx, "/milliseconds", &now.recent); err != nil {
		return nil, err
	}
	comparable := o.hasPrevious && now.now.Uptime > now.before.Uptime
	o.previous, o.hasPrevious = now.now, true
	if !comparable {
		return nil, nil
	}
	return &now, nil
}

func (o *observer) get(ctx context.Context, path string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+o.addr+path, nil)
	if err != nil {
		return err
	}
	if o.token != "" {
		req.Header.Set("Authorization", "Bearer "+o.token)
	}
	resp, err := o.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		body, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
		return errors.Join(fmt.Errorf("%s%s: %s: %s", o.addr, path, resp.Status, strings.TrimSpace(string(body))), err)
	}
	return json.NewDecoder(resp.Body).Decode(into)
}

// topOnce prints one frame as plain text.
func topOnce(ctx context.Context, o *observer, out io.Writer) error {
	wait := time.NewTicker(topInterval)
	defer wait.Stop()
	for {
		f, err := o.next(ctx)
		if err != nil {
			return err
		}
		if f != nil {
			_, err = io.WriteString(out, strings.Join(f.lines(defaultSize), "\n")+"\n")
			return err
		}
		select {
		case <-wait.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// top draws a frame each second until q or a signal. It goes on if the sidecar does not
// respond.
func top(ctx context.Context, o *observer) error {
	screen, err := openScreen()
	if err != nil {
		return err
	}
	defer screen.close()
	next := time.NewTicker(topInterval)
	defer next.Stop()
	for {
		switch f, err := o.next(ctx); {
		case err != nil && ctx.Err() == nil:
			screen.draw([]string{"remora top: no response", "", err.Error()})
		case f != nil:
			screen.draw(f.lines(screen.size()))
		}
		select {
		case <-next.C:
		case key := <-screen.keys:
			if key == 'q' {
				return nil
			}
		case <-ctx.Done():
			return nil
		}
	}
}
