// Package manual has the command that writes the manual pages.
package manual

import (
	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// New returns the command "remora man", with which packages are made. The pages have
// the date of SOURCE_DATE_EPOCH, so the same version gives the same bytes.
func New() *cobra.Command {
	return &cobra.Command{
		Use:    "man DIR",
		Short:  "Write the manual pages to a directory",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			root.DisableAutoGenTag = true
			return doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "remora " + root.Version, Manual: "Remora"}, args[0])
		},
	}
}
