package cpuquota

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/remora-proxy/remora/internal/must"
)

// TestWhole: a thread for each whole CPU.
func TestWhole(t *testing.T) {
	for quota, want := range map[float64]int{
		0: 1, -1: 1, 0.3: 1, 1: 1, 1.99: 1, 2: 2, 3.5: 3, math.Inf(1): math.MaxInt32, math.NaN(): 1,
	} {
		if got := whole(quota); got != want {
			t.Errorf("%v: %d, want %d", quota, got, want)
		}
	}
}

func TestQuota(t *testing.T) {
	const self, fs = "proc/self/cgroup", "sys/fs/cgroup/"
	cases := []struct {
		name  string
		files map[string]string
		want  float64
	}{
		{"no control groups", nil, 8},
		{"v2, none", map[string]string{self: "0::/a\n", fs + "a/cpu.max": "max 100000\n"}, 8},
		{"v2", map[string]string{self: "0::/a\n", fs + "a/cpu.max": "250000 100000\n"}, 2.5},
		{"v2, above the affinity", map[string]string{self: "0::/a\n", fs + "a/cpu.max": "1600000 100000\n"}, 8},
		{"v2, the parent's", map[string]string{
			self: "0::/a/b\n", fs + "a/cpu.max": "100000 100000", fs + "a/b/cpu.max": "300000 100000",
		}, 1},
		{"v2, in a container", map[string]string{self: "0::/../../x\n", fs + "cpu.max": "50000 100000\n"}, 0.5},
		{"v2, with the host's path", map[string]string{self: "0::/kube/pod\n", fs + "cpu.max": "50000 100000\n"}, 0.5},
		{"v1", map[string]string{
			self:                                   "4:cpu,cpuacct:/a\n0::/\n",
			fs + "cpu,cpuacct/a/cpu.cfs_quota_us":  "150000\n",
			fs + "cpu,cpuacct/a/cpu.cfs_period_us": "100000\n",
		}, 1.5},
		{"v1, none", map[string]string{
			self: "1:cpu:/\n", fs + "cpu/cpu.cfs_quota_us": "-1\n", fs + "cpu/cpu.cfs_period_us": "100000\n",
		}, 8},
		{"v1, not of cpu", map[string]string{
			self: "1:cpuset:/\n", fs + "cpu/cpu.cfs_quota_us": "1000\n", fs + "cpu/cpu.cfs_period_us": "100000\n",
		}, 8},
		{"nonsense", map[string]string{self: "x\n0::/\n1:cpu:/\n", fs + "cpu.max": "1 2 3", fs + "cpu/cpu.cfs_quota_us": "x"}, 8},
		{"more nonsense", map[string]string{self: "0::/\n", fs + "cpu.max": "100 0"}, 8},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			for name, content := range c.files {
				file := filepath.Join(root, name)
				if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
					t.Fatal(err)
				}
				must.WriteFile(t, file, content)
			}
			if got := quota(root, 8); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}
