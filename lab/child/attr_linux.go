package child

import (
	"os"
	"syscall"
)

// attr keeps a Ctrl-C at the terminal from the children, which are ended in
// order by this process, and ends them should it be killed.
func attr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}

// kill ends a process that has not ended, and what it has started, which is in its
// group: attr made it the leader.
func kill(p *os.Process) { syscall.Kill(-p.Pid, syscall.SIGKILL) }
