package dubbo

import (
	"bytes"
	"encoding/json"
	"strconv"
)

// fastjson is serialization 6: JSON values, one per line.
type fastjson struct{}

func (fastjson) split(dst [][]byte, body []byte) ([][]byte, bool) {
	for line := range bytes.Lines(body) {
		dst = append(dst, bytes.TrimSuffix(line, []byte("\n")))
	}
	return dst, true
}

func (fastjson) text(value []byte) (string, bool) {
	if len(value) == 0 || value[0] != '"' {
		return "", false // json would take null as a string
	}
	var s string
	return s, json.Unmarshal(value, &s) == nil
}

func (fastjson) null() string { return "null" }

func (fastjson) appendText(dst []byte, s string) []byte {
	b, _ := json.Marshal(s) // a string can't fail
	return append(append(dst, b...), '\n')
}

func (fastjson) appendInt(dst []byte, n int32) []byte {
	return append(strconv.AppendInt(dst, int64(n), 10), '\n')
}

func (fastjson) appendRaw(dst, value []byte) []byte { return append(append(dst, value...), '\n') }
