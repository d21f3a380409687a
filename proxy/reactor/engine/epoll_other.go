//go:build !linux

package engine

import "github.com/remora-proxy/remora/proxy/reactor/kernel"

func openEpoll() (kernel.Poller, error) { return nil, kernel.ErrLinuxOnly }
