package dubbo

import (
	"bytes"
	"unicode/utf8"
)

// maxArguments is the most that a Java method may have (JVMS section 4.3.3).
const maxArguments = 255

// countTypes counts the parameters that concatenated descriptors describe.
func countTypes(descriptors []byte) (n int, ok bool) {
	for len(descriptors) > 0 {
		size := descriptorLen(descriptors)
		if size == 0 || n == maxArguments {
			return 0, false
		}
		descriptors = descriptors[size:]
		n++
	}
	return n, true
}

// descriptorLen is the length of the field descriptor (JVMS section 4.3.2) at the
// start of b, 0 for none. V is one here: it is what dubbo-go says that null is.
func descriptorLen(b []byte) int {
	i := 0
	for i < len(b) && b[i] == '[' {
		i++
	}
	if i == len(b) {
		return 0
	}
	switch b[i] {
	case 'B', 'C', 'D', 'F', 'I', 'J', 'S', 'V', 'Z':
		return i + 1
	case 'L':
		n := bytes.IndexByte(b[i:], ';')
		if n > 1 && isClassName(b[i+1:i+n]) {
			return i + n + 1
		}
	}
	return 0
}

// isClassName tells whether a class may have this name in its internal form
// (JVMS section 4.2.1), which takes nearly anything.
func isClassName(name []byte) bool {
	for _, c := range name {
		if c <= ' ' || c == '.' || c == '[' || c == '"' || c == '\\' || c == 0x7f {
			return false
		}
	}
	return utf8.Valid(name)
}

// appendDescriptor appends the descriptor of the type that Java calls name. What
// is no name of a type makes no descriptor either.
func appendDescriptor(dst, name []byte) []byte {
	for {
		element, isArray := bytes.CutSuffix(name, []byte("[]"))
		if !isArray {
			break
		}
		dst = append(dst, '[')
		name = element
	}
	if code := primitive(name); code != 0 {
		return append(dst, code)
	}
	dst = append(dst, 'L')
	for _, c := range name {
		if c == '.' {
			c = '/'
		}
		dst = append(dst, c)
	}
	return append(dst, ';')
}

func primitive(name []byte) byte {
	switch string(name) {
	case "boolean":
		return 'Z'
	case "byte":
		return 'B'
	case "char":
		return 'C'
	case "double":
		return 'D'
	case "float":
		return 'F'
	case "int":
		return 'I'
	case "long":
		return 'J'
	case "short":
		return 'S'
	}
	return 0
}
