//go:build manual

package main

import "github.com/remora-proxy/remora/cmd/remora/manual"

// The library that writes manual pages has large tables, which every sidecar would keep. So only the program with which
// scripts/release.sh makes packages has this command.
func init() { commandsOfTags = append(commandsOfTags, manual.New) }
