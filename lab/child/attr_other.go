//go:build !linux

package child

import (
	"os"
	"syscall"
)

func attr() *syscall.SysProcAttr { return nil }

func kill(p *os.Process) { p.Kill() }
