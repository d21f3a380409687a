//go:build !linux

package child

import "syscall"

// attr puts a child into a group of its own, as on Linux. It survives this process if that is
// killed.
func attr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
