package mesh

import (
	"testing"
)

func TestRandomMeshes(t *testing.T) {
	seeds := uint64(300)
	if testing.Short() || raceEnabled {
		seeds = 60
	}
	for seed := range seeds {
		spec := Random(seed)
		if err := spec.Validate(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for _, wrong := range Run(spec).Violations {
			t.Error(wrong)
		}
	}
}
