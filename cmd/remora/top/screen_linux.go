package top

import "golang.org/x/sys/unix"

// The requests of ioctl that read and set a terminal's modes.
const getTermios, setTermios = unix.TCGETS, unix.TCSETS
