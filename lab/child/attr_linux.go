package child

import "syscall"

// attr puts a child into a group of its own, so that a Ctrl-C at the terminal does not reach
// it: this process stops its children in order. The kernel ends them if it is killed.
func attr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}
