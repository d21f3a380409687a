package config

import "strings"

// expectedKeys suggests the key that was probably meant, or else lists all names.
func expectedKeys(names []string, key string) string {
	if hint := didYouMean(key, names); hint != "" {
		return strings.TrimPrefix(hint, "; ")
	}
	return "expected one of " + strings.Join(names, ", ")
}

// didYouMean returns "; did you mean x?" if one of the names is similar to given, or
// "".
func didYouMean(given string, names []string) string {
	best, bestDistance := "", max(2, len(given)/3)+1
	if len(given) > 64 {
		return ""
	}
	squash := strings.NewReplacer("_", "", "-", "")
	for _, name := range names {
		// maxQueue and max-queue mean max_queue.
		if strings.EqualFold(squash.Replace(given), squash.Replace(name)) {
			best = name
			break
		}
		if d := distance(given, name); d < bestDistance && d < len(name) {
			best, bestDistance = name, d
		}
	}
	if best == "" {
		return ""
	}
	return "; did you mean " + best + "?"
}

// distance returns the number of edits from a to b. A swap of neighbours is one edit.
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
