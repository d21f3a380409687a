package demo

import "syscall"

// childAttr keeps a Ctrl-C at the terminal from the children, which are ended in
// order by this process, and ends them should it be killed.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}
