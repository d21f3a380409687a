package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/remora-proxy/remora/fleet"
	"github.com/remora-proxy/remora/fleet/store"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/registry"
	"github.com/remora-proxy/remora/registry/etcd"
)

// rolling are the flags of commands that roll out.
type rolling struct {
	toText, guardText, by string

	// Of parse.
	to    fleet.Target
	guard *fleet.Guard // nil means none
}

func (r *rolling) add(cmd *cobra.Command, usage string) {
	cmd.Flags().StringVar(&r.toText, "to", "", usage)
	cmd.Flags().StringVar(&r.guardText, "guard", "", `take the roll-out back when it makes a service slower: "p99 <= 1.05x"`)
	cmd.Flags().StringVar(&r.by, "by", operator(), "who changes it, which fleet status shows")
}

// parse parses the flags. A guard needs sidecars to compare with.
func (r *rolling) parse() (err error) {
	r.to = fleet.Everywhere()
	if r.toText != "" {
		if r.to, err = fleet.ParseTarget(r.toText); err != nil {
			return fmt.Errorf("--to: %w", err)
		}
	}
	if r.guardText == "" {
		return nil
	}
	if r.guard, err = fleet.ParseGuard(r.guardText); err != nil {
		return fmt.Errorf("--guard: %w", err)
	}
	if r.to.All() {
		return errors.New("--guard compares sidecars with and without the revision; expected --to with some of them")
	}
	return nil
}

// step is a change of the head that rolls out to the sidecars of a target. A revision is added if it is not nil.
type step func(head fleet.Head, to fleet.Target) (next fleet.Head, added *fleet.Revision, err error)

// roll changes the head by a step. The target is that of --to, in the fleet as it is now.
func (r *rolling) roll(cmd *cobra.Command, where *location, by step) error {
	return where.with(cmd, func(ctx context.Context, s *store.Store) error {
		var nodes []string
		if _, err := s.Statuses(ctx, func(st *fleet.Status) { nodes = append(nodes, st.Node) }); err != nil {
			return err
		}
		return changeHead(ctx, cmd, s, func(head fleet.Head) (fleet.Head, *fleet.Revision, error) {
			return by(head, r.to.Among(nodes))
		})
	})
}

func (r *rolling) change() fleet.Change { return fleet.Change{At: time.Now().UTC(), By: r.by} }

// newSet returns the command "remora fleet set".
func newSet(where *location, report Report) *cobra.Command {
	var flags rolling
	cmd := &cobra.Command{
		Use:   "set FILE [--to {5% | tier=canary} [--guard \"p99 <= 1.05x\"]]",
		Short: "Make an overlay the next revision, and roll it out",
		Long: "Make FILE the next revision of the overlay. Without --to all sidecars run it; with --to a part of them, or those\n" +
			"with certain node.labels. An overlay that no sidecar would take is refused with its errors. While a roll-out is\n" +
			"under way there is no other one. With --guard the sidecars take the roll-out back by themselves when a service\n" +
			"is slower on those that run the revision than on the others.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := flags.parse(); err != nil {
				return err
			}
			text, err := readOverlay(cmd, args[0], report)
			if err != nil {
				return err
			}
			return flags.roll(cmd, where, func(head fleet.Head, to fleet.Target) (fleet.Head, *fleet.Revision, error) {
				change := flags.change()
				next, err := head.Set(to, flags.guard, change)
				return next, &fleet.Revision{Number: next.Newest, At: change.At, By: change.By, Text: text}, err
			})
		},
	}
	flags.add(cmd, "sidecars that run the revision: a percentage, or node.labels such as tier=canary")
	return cmd
}

// readOverlay reads a file that some sidecar may take as an overlay.
func readOverlay(cmd *cobra.Command, file string, report Report) (text string, err error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	if len(data) > fleet.MaxText {
		return "", fmt.Errorf("%s: larger than %d bytes", file, fleet.MaxText)
	}
	var errs config.Errors
	if err := config.CheckOverlay(&config.Overlay{Name: file, Text: data}); errors.As(err, &errs) {
		return "", report(cmd, errs)
	}
	return string(data), nil
}

// newRollout returns the command "remora fleet rollout".
func newRollout(where *location) *cobra.Command {
	var flags rolling
	cmd := &cobra.Command{
		Use:   "rollout [--to 20%]",
		Short: "Roll the newest revision out to more sidecars",
		Long: "Change which sidecars run the revision that is being rolled out. A larger percentage contains the sidecars of\n" +
			"each smaller one. Without --to all sidecars run it, and the roll-out has ended.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := flags.parse(); err != nil {
				return err
			}
			return flags.roll(cmd, where, func(head fleet.Head, to fleet.Target) (fleet.Head, *fleet.Revision, error) {
				next, err := head.Rollout(to, flags.guard, flags.change())
				return next, nil, err
			})
		},
	}
	flags.add(cmd, "sidecars that run the revision: a percentage, or node.labels such as tier=canary (default all)")
	return cmd
}

// newRollback returns the command "remora fleet rollback".
func newRollback(where *location) *cobra.Command {
	var flags rolling
	cmd := &cobra.Command{
		Use:   "rollback [REVISION]",
		Short: "Take a roll-out back, or return to an earlier revision",
		Long: "Without REVISION a roll-out is taken back; if none is under way, all sidecars return to the revision before.\n" +
			"With REVISION all sidecars run that one. Revision 0 leaves only their files.",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var revision int64
			if len(args) > 0 {
				var err error
				if revision, err = strconv.ParseInt(args[0], 10, 64); err != nil {
					return fmt.Errorf("%q: expected the number of a revision", args[0])
				}
			}
			return where.with(cmd, func(ctx context.Context, s *store.Store) error {
				return changeHead(ctx, cmd, s, func(head fleet.Head) (next fleet.Head, none *fleet.Revision, err error) {
					if len(args) == 0 {
						next, err = head.Rollback(flags.change())
					} else {
						next, err = head.RollbackTo(revision, flags.change())
					}
					if err == nil && next.Stable != 0 && next.Stable != head.Stable {
						_, err = s.Revision(ctx, next.Stable) // only the last ones are kept
					}
					return next, nil, err
				})
			})
		},
	}
	cmd.Flags().StringVar(&flags.by, "by", operator(), "who changes it, which fleet status shows")
	return cmd
}

// isUncertain reports whether etcd may have done what failed: there was no response, or nobody waited for it (Ctrl-C).
func isUncertain(err error) bool {
	var request *etcd.RequestError
	return errors.Is(err, context.Canceled) || errors.As(err, &request) && request.Code == registry.CodeUnreachable
}

// changeHead changes the head from what it is now, and prints what has changed.
func changeHead(ctx context.Context, cmd *cobra.Command, s *store.Store, change func(fleet.Head) (fleet.Head, *fleet.Revision, error)) error {
	head, at, err := s.Head(ctx)
	if err != nil {
		return err
	}
	next, added, err := change(head)
	if err != nil {
		return err
	}
	err = s.Change(ctx, at, &next, added)
	if isUncertain(err) {
		return fmt.Errorf("%w; etcd may have made the change: look at remora fleet status before you try again", err)
	} else if err != nil {
		return err
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), next.Change.What)
	return err
}
