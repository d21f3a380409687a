//go:build oss_fuzz_seeds

package testing

import (
	"fmt"
	"os"
)

// writeSeed writes the arguments of a fuzz target to a file of $FUZZ_SEEDS, as go-118-fuzz-build reads them from the
// bytes of libFuzzer: numbers first, big-endian; then a weight for each text, which says its share of the rest; then the
// texts. build.sh puts it into package testing, which calls it for each seed of a target.
func writeSeed(values []any) {
	dir := os.Getenv("FUZZ_SEEDS")
	if dir == "" {
		return
	}
	var numbers, weights, texts []byte
	var lengths []int
	longest := 255
	for _, value := range values {
		switch v := value.(type) {
		case string:
			lengths, texts = append(lengths, len(v)), append(texts, v...)
			longest = max(longest, len(v))
		case []byte:
			lengths, texts = append(lengths, len(v)), append(texts, v...)
			longest = max(longest, len(v))
		case bool:
			numbers = appendNumber(numbers, 1, 0)
			if v {
				numbers[len(numbers)-1] = 1
			}
		case byte:
			numbers = appendNumber(numbers, 1, uint64(v))
		case uint16:
			numbers = appendNumber(numbers, 2, uint64(v))
		case uint64:
			numbers = appendNumber(numbers, 8, v)
		case int:
			numbers = appendNumber(numbers, 8, uint64(v))
		case int64:
			numbers = appendNumber(numbers, 8, uint64(v))
		default:
			panic(fmt.Sprintf("a seed of type %T", value))
		}
	}
	for _, n := range lengths {
		weights = append(weights, byte(n*255/longest))
	}
	f, err := os.CreateTemp(dir, "seed")
	if err == nil {
		_, err = f.Write(append(append(numbers, weights...), texts...))
	}
	if err != nil {
		panic(err)
	}
	f.Close()
}

func appendNumber(dst []byte, size int, v uint64) []byte {
	for i := size - 1; i >= 0; i-- {
		dst = append(dst, byte(v>>(8*i)))
	}
	return dst
}
