package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set by release builds: -ldflags "-X main.version=v1.2.3". Other
// builds say what the toolchain recorded.
var version string

// newVersion is "remora version".
func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprint(cmd.OutOrStdout(), versionLine())
			return err
		},
	}
}

// versionLine is what "remora version" and "remora --version" print.
func versionLine() string {
	return fmt.Sprintf("remora %s %s %s/%s\n", versionOf(version, buildInfo()), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// buildInfo is what the toolchain recorded, or nil.
func buildInfo() *debug.BuildInfo {
	info, _ := debug.ReadBuildInfo()
	return info
}

// versionOf is the version that was set, else that of the module, else the
// commit it was built from, else "devel". info may be nil.
func versionOf(set string, info *debug.BuildInfo) string {
	if set != "" {
		return set
	}
	if info == nil {
		return "devel"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	revision := settings["vcs.revision"]
	if revision == "" {
		return "devel"
	}
	revision = "devel-" + revision[:min(len(revision), 12)]
	if settings["vcs.modified"] == "true" {
		revision += "-dirty"
	}
	return revision
}
