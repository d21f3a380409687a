package top

import (
	"context"
	"encoding/json"
	"fmt"
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
	interval = time.Second

	// timeout bounds a request. It is longer than the admin API itself may take.
	timeout = 5 * time.Second
)

// New returns the command "remora top": a dashboard in the terminal. load reads a configuration file.
func New(load adminclient.Load) *cobra.Command {
	flags := adminclient.Flags{Load: load}
	var once bool
	cmd := &cobra.Command{
		Use:   "top [--admin ADDR | -c FILE] [--once]",
		Short: "Show the activity of a running sidecar",
		Long: "Show the activity of a running sidecar each second: requests, percentiles, hedges and the gates that stopped\n" +
			"others, its own error responses by listener and code, endpoints, and the single milliseconds of the last seconds.\n" +
			"Arrows, space, b, g and G scroll; q or Ctrl-C ends it. A narrow terminal gets fewer columns: +N says how many are left out.\n\n" +
			"If admin.token is set, the token comes from the configuration file or from $" + adminclient.TokenVariable + ".",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			at, err := flags.API(cmd)
			if err != nil {
				return err
			}
			o := observer{Admin: at, client: http.Client{Timeout: timeout, Transport: adminclient.Transport(at.Address)}}
			ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			if once {
				return printFrame(ctx, &o, cmd.OutOrStdout())
			}
			return watch(ctx, &o)
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

// printFrame prints one frame as plain text.
func printFrame(ctx context.Context, o *observer, out io.Writer) error {
	next := time.Tick(interval)
	for {
		f, err := o.next(ctx)
		if err != nil {
			return err
		}
		if f != nil {
			_, err = io.WriteString(out, strings.Join(f.lines(defaultSize.columns), "\n")+"\n")
			return err
		}
		select {
		case <-next:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// watch draws a frame each second until q or a signal. It goes on if the sidecar does not
// respond.
func watch(ctx context.Context, o *observer) error {
	screen, err := openScreen()
	if err != nil {
		return err
	}
	defer screen.close()
	next := time.Tick(interval)
	shown, v := reading{at: time.Now()}, view{}
	for {
		f, err := o.next(ctx)
		if ctx.Err() != nil {
			return nil
		}
		shown.take(f, err, time.Now())
		for waiting := true; waiting; {
			room := screen.size()
			screen.draw(v.cut(shown.lines(room.columns, time.Now()), room))
			select {
			case <-next:
				waiting = false
			case key := <-screen.keys:
				if key == "q" {
					return nil
				}
				v.scroll(key, room.rows)
			case <-ctx.Done():
				return nil
			}
		}
	}
}

// reading is the last frame, and the error since then.
type reading struct {
	frame *frame // nil before the first
	at    time.Time
	err   error
}

// take notes what was read. A frame and an error are nil if there is nothing to compare with yet.
func (r *reading) take(f *frame, err error, now time.Time) {
	r.err = err
	if err == nil {
		r.at = now
	}
	if f != nil {
		r.frame = f
	}
}

// lines returns the frame. Without a response it says for how long, above the last frame.
func (r *reading) lines(columns int, now time.Time) (out []string) {
	if r.err != nil {
		ago := now.Sub(r.at).Round(time.Second)
		for _, line := range []string{fmt.Sprintf("remora top: no response for %s", ago), r.err.Error(), ""} {
			out = append(out, cutLine(line, columns))
		}
	}
	if r.frame != nil {
		out = append(out, r.frame.lines(columns)...)
	}
	return out
}
