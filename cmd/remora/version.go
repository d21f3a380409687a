package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set by release builds: -ldflags "-X main.version=v1.2.3". Other builds use
// the version that the toolchain recorded.
var version string

// newVersion returns the command "remora version".
func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version, and the engine that a sidecar without a setting would have",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			kind, err := chooseEngine("", "")
			if err == nil {
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s engine=%s\n", versionLine(), kind.Name)
			}
			return err
		},
	}
}

// versionLine returns the output of "remora --version", without the line feed.
func versionLine() string {
	return fmt.Sprintf("remora %s %s %s/%s", versionOf(version, buildInfo()), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// buildInfo returns what the toolchain recorded, or nil.
func buildInfo() *debug.BuildInfo {
	info, _ := debug.ReadBuildInfo()
	return info
}

// versionOf returns the version that was set, or else that of the module, or else the
// commit of the build, or else "devel". info may be nil.
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
