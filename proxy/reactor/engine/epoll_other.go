//go:build !linux

package engine

import (
	"errors"
	"fmt"

	"github.com/remora-proxy/remora/proxy/reactor/kernel"
)

func openEpoll() (kernel.Poller, error) {
	return nil, fmt.Errorf("%w: %w", errors.ErrUnsupported, kernel.ErrLinuxOnly)
}
