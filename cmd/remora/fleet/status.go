package fleet

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/remora-proxy/remora/fleet"
	"github.com/remora-proxy/remora/fleet/store"
	"github.com/remora-proxy/remora/internal/printable"
)

// newStatus returns the command "remora fleet status".
func newStatus(where *location) *cobra.Command {
	var all, asJSON bool
	cmd := &cobra.Command{
		Use:   "status [--all | --json]",
		Short: "Show which sidecars run which revision, and who refused one",
		Long: "Show the stable revision and the roll-out, how many sidecars run each revision, which of them refuse one and\n" +
			"why, and what hedging does since the last change. A sidecar that ends is shown until its lease expires.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return where.with(cmd, func(ctx context.Context, s *store.Store) error {
				head, _, err := s.Head(ctx)
				if err != nil {
					return err
				}
				var sidecars []fleet.Status
				unread, err := s.Statuses(ctx, func(st *fleet.Status) { sidecars = append(sidecars, *st) })
				if err != nil {
					return err
				}
				if asJSON {
					out := json.NewEncoder(cmd.OutOrStdout())
					out.SetIndent("", " ")
					return out.Encode(map[string]any{"head": head, "sidecars": sidecars, "unreadable": unread.Bad, "more": unread.More})
				}
				return printStatus(cmd.OutOrStdout(), &head, sidecars, unread, all)
			})
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "list every sidecar")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print everything as JSON")
	return cmd
}

// printStatus prints the head, and what the sidecars say of themselves.
func printStatus(to io.Writer, head *fleet.Head, sidecars []fleet.Status, unread store.Unread, all bool) error {
	out := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintf(out, "stable\t%s\n", named(head.Stable))
	if head.Candidate != 0 {
		fmt.Fprintf(out, "roll-out\trevision %d to %s%s\n", head.Candidate, head.To, guarded(head.Guard))
	}
	if c := head.Change; c.What != "" {
		fmt.Fprintf(out, "changed\t%s: %s%s%s\n", c.At.Format(time.RFC3339), line(c.What), after(", by ", c.By), after(": ", c.Why))
	}
	count := map[int64]int{}
	for i := range sidecars {
		count[sidecars[i].Revision]++
	}
	for _, revision := range slices.Sorted(maps.Keys(count)) {
		fmt.Fprintf(out, "%s\t%d of %d sidecars\n", named(revision), count[revision], len(sidecars))
	}
	if unread.Bad > 0 {
		fmt.Fprintf(out, "unreadable\t%d sidecars\n", unread.Bad)
	}
	if unread.More {
		fmt.Fprintln(out, "more\tsidecars than the first 10,000 by name, which alone are shown")
	}
	for i := range sidecars {
		s := &sidecars[i]
		if all {
			fmt.Fprintf(out, "%s\t%s since %s, %s\n", line(s.Node), named(s.Revision), s.Since.Format(time.RFC3339), line(s.Version))
		}
		if r := s.Refused; r != nil {
			fmt.Fprintf(out, "%s\trefuses revision %d (%s): %s\n", line(s.Node), r.Revision, line(r.Code), line(r.String()))
		}
	}
	if err := out.Flush(); err != nil {
		return err
	}
	return printServices(to, head, sidecars)
}

// named returns the name of a revision.
func named(revision int64) string {
	if revision == 0 {
		return "files alone"
	}
	return fleet.NameOf(revision)
}

// after returns text after a separator; "" stays "".
func after(separator, text string) string {
	if text == "" {
		return ""
	}
	return separator + line(text)
}

// line returns a text from etcd without line breaks and tabs, so that it takes no other place on the page.
func line(text string) string { return printable.Text(text, "") }

func guarded(g *fleet.Guard) string {
	if g == nil {
		return ""
	}
	return ", guarded by " + g.String()
}

// printServices prints what the services did since the last change of the head, on the sidecars with each revision.
func printServices(to io.Writer, head *fleet.Head, sidecars []fleet.Status) error {
	type key struct {
		service  string
		revision int64
	}
	sums := map[key]*fleet.Service{}
	for i := range sidecars {
		s := &sidecars[i]
		if !s.Change.Equal(head.Change.At) {
			continue
		}
		for name, svc := range s.Services {
			k := key{name, s.Revision}
			if sums[k] == nil {
				sums[k] = new(fleet.Service)
			}
			sums[k].Add(&svc)
		}
	}
	if len(sums) == 0 {
		return nil
	}
	out := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "\nservice\trevision\trequests\tfailed\thedged\textra load\twon")
	keys := slices.SortedFunc(maps.Keys(sums), func(a, b key) int {
		return cmp.Or(cmp.Compare(a.service, b.service), cmp.Compare(a.revision, b.revision))
	})
	for _, k := range keys {
		s := sums[k]
		reached := s.Hedges - min(s.Missed, s.Hedges)
		fmt.Fprintf(out, "%s\t%d\t%d\t%d\t%d\t%s\t%s\n", line(k.service), k.revision, s.Requests, s.Failed, s.Hedges, share(reached, s.Requests), share(s.Won, reached))
	}
	return out.Flush()
}

// share returns a part in percent.
func share(part, whole uint64) string {
	return fmt.Sprintf("%.1f%%", 100*float64(part)/float64(max(whole, 1)))
}
