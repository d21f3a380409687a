package bench

import (
	"bytes"
	"strings"
	"testing"
)

func testMemory(t *testing.T, remora string) {
	tools := Tools{Lab: self(t), Remora: remora}
	var b bytes.Buffer
	if err := Memory(t.Context(), tools, 20, 3, &b); err != nil {
		t.Fatal(err)
	}
	noChildren(t)
	for _, want := range []string{"with nothing to do", "never used", "between requests", "in flight", "at the consumer", "at the provider"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, &b)
		}
	}
	for _, bad := range [][2]int{{0, 1}, {1, 0}, {1, 251}, {1 << 30, 1}} {
		if err := Memory(t.Context(), tools, bad[0], bad[1], &b); err == nil {
			t.Errorf("%v: no error", bad)
		}
	}
}
