package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/remora-proxy/remora/cmd/remora/adminclient"
	"github.com/remora-proxy/remora/proxy/admin"
	"github.com/remora-proxy/remora/proxy/config"
)

const (
	topInterval = time.Second

	// topTimeout bounds a request. It is longer than the admin API itself may take.
	topTimeout = 5 * time.Second
)

// newTop returns the command "remora top": a dashboard in the terminal.
func newTop() *cobra.Command {
	flags := adminclient.Flags{Load: load}
	var once bool
	cmd := &cobra.Command{
		Use:   "top [--admin ADDR | -c FILE] [--once]",
		Short: "Show the activity of a running sidecar",
		Long: "Show the activity of a running sidecar each second: requests, percentiles, hedges and the gates that stopped\n" +
			"others, endpoints, and the single milliseconds of the last seconds. q or Ctrl-C ends it.\n\n" +
			"If admin.token is set, the token comes from the configuration file or from $" + adminclient.TokenVariable + ".",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			at, err := flags.API(cmd)
			if err != nil {
				return err
			}
			o := observer{Admin: at, client: http.Client{Timeout: topTimeout}}
			ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			if once {
				return topOnce(ctx, &o, cmd.OutOrStdout())
			}
			return top(ctx, &o)
		},
	}
	cmd.Flags().BoolVar(&once, "once", false, "watch for a second, print one frame, and end")
	flags.Add(cmd, "configuration file with address and token")
	return cmd
}

// observer reads the admin API at each frame.
type observer struct {
	config.Admin
	client   http.Client
	previous *admin.Stats // nil before the first frame
}

// next reads the data of a frame. It returns nil if there is nothing to compare with:
// the first time, and after a restart of the sidecar.
func (o *observer) next(ctx context.Context) (f *frame, err error) {
	f = &frame{before: o.previous, now: new(admin.Stats)}
	if err := o.get(ctx, "/stats", f.now); err != nil {
		return nil, err
	}
	if err := o.get(ctx, "/milliseconds", &f.recent); err != nil {
		return nil, err
	}
	o.previous = f.now
	if f.before == nil || f.now.Uptime <= f.before.Uptime {
		return nil, nil
	}
	return f, nil
}

func (o *observer) get(ctx context.Context, path string, into any) error {
	body, err := adminclient.Get(ctx, &o.client, o.Admin, path)
	if err != nil {
		return err
	}
	return json.Unmarshal(body, into)
}

// topOnce prints one frame as plain text.
func topOnce(ctx context.Context, o *observer, out io.Writer) error {
	next := time.Tick(topInterval)
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
		case <-next:
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
	next := time.Tick(topInterval)
	for {
		switch f, err := o.next(ctx); {
		case err != nil && ctx.Err() == nil:
			screen.draw([]string{"remora top: no response", "", printableText(err.Error(), "")})
		case f != nil:
			screen.draw(f.lines(screen.size()))
		}
		select {
		case <-next:
		case key := <-screen.keys:
			if key == 'q' {
				return nil
			}
		case <-ctx.Done():
			return nil
		}
	}
}
