package fleet

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/remora-proxy/remora/fleet"
	"github.com/remora-proxy/remora/fleet/store"
	"github.com/remora-proxy/remora/internal/printable"
)

// newDiff returns the command "remora fleet diff".
func newDiff(where *location) *cobra.Command {
	return &cobra.Command{
		Use:   "diff [OTHER [FROM]]",
		Short: "Show what differs between two revisions",
		Long: "Show the lines that differ between the stable revision and the roll-out or, without one, between the revision\n" +
			"before and the stable one. OTHER, the number of a revision or a file, takes the place of the roll-out, and FROM\n" +
			"that of the stable revision.",
		Args: cobra.MaximumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return where.with(cmd, func(ctx context.Context, s *store.Store) error {
				head, _, err := s.Head(ctx)
				if err != nil {
					return err
				}
				from, to := defaultSides(&head)
				if len(args) > 0 {
					from, to = strconv.FormatInt(head.Stable, 10), args[0]
				}
				if len(args) > 1 {
					from = args[1]
				}
				a, err := textOf(ctx, s, from)
				if err != nil {
					return err
				}
				b, err := textOf(ctx, s, to)
				if err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "--- %s\n+++ %s\n", from, to)
				return printDiff(cmd.OutOrStdout(), lines(a), lines(b))
			})
		},
	}
}

// defaultSides returns the numbers of the revisions that diff compares by itself.
func defaultSides(h *fleet.Head) (from, to string) {
	a, b := h.Stable, h.Candidate
	if b == 0 {
		if a, b = 0, h.Stable; len(h.Past) > 0 {
			a = h.Past[len(h.Past)-1]
		}
	}
	return strconv.FormatInt(a, 10), strconv.FormatInt(b, 10)
}

// textOf returns the text of a revision, or of a file.
func textOf(ctx context.Context, s *store.Store, name string) (string, error) {
	n, err := strconv.ParseInt(name, 10, 64)
	if err != nil {
		data, err := os.ReadFile(name)
		return string(data), err
	}
	if n == 0 {
		return "", nil
	}
	r, err := s.Revision(ctx, n)
	return r.Text, err
}

func lines(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

// maxCompared bounds the pairs of lines that are compared. Texts with more are shown whole.
const maxCompared = 4 << 20

// printDiff prints the lines of a and b: those of both with a space before them, the others with - or +.
func printDiff(to io.Writer, a, b []string) (err error) {
	print := func(sign string, lines []string) {
		for _, line := range lines {
			if err == nil {
				_, err = fmt.Fprintln(to, sign+printable.Text(line, "\t"))
			}
		}
	}
	if len(a)*len(b) > maxCompared {
		print("-", a)
		print("+", b)
		return err
	}
	common := commonLengths(a, b)
	i, j := 0, 0
	for i < len(a) && j < len(b) {
		switch {
		case a[i] == b[j]:
			print(" ", a[i:i+1])
			i, j = i+1, j+1
		case common[i+1][j] >= common[i][j+1]:
			print("-", a[i:i+1])
			i++
		default:
			print("+", b[j:j+1])
			j++
		}
	}
	print("-", a[i:])
	print("+", b[j:])
	return err
}

// commonLengths returns the length of the longest common subsequence of a[i:] and b[j:], at [i][j].
func commonLengths(a, b []string) [][]int32 {
	common := make([][]int32, len(a)+1)
	for i := range common {
		common[i] = make([]int32, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	return common
}
