package overload

import (
	"os"
	"runtime/metrics"
)

// OpenFiles returns the number of open descriptors, which the system counts from Linux 6.2 on:
// it is the size of their directory. On an older one ok is false.
func OpenFiles() (n int64, ok bool) {
	info, err := os.Stat("/proc/self/fd")
	if err != nil || info.Size() == 0 {
		return 0, false
	}
	return info.Size(), true
}

// Memory returns the resource of memory: what Go holds of the system, in bytes, against its
// memory limit and a tenth more, because the limit is soft. Near the limit the collector works
// harder; above it the process grows beyond what was planned for it.
func Memory() Resource {
	return Resource{Name: "memory", Used: heldMemory, Limit: func() int64 { return memoryLimit() / 10 * 11 }}
}

func heldMemory() int64 {
	s := [...]metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(s[:])
	return int64(s[0].Value.Uint64() - s[1].Value.Uint64())
}

func memoryLimit() int64 {
	s := [...]metrics.Sample{{Name: "/gc/gomemlimit:bytes"}}
	metrics.Read(s[:])
	return int64(min(s[0].Value.Uint64(), 1<<62))
}
