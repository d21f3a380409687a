package caching

import (
	"strings"
	"time"
)

// Date reads a date of HTTP (RFC 9110 section 5.6.7), in seconds since 1970. The preferred format
// takes no memory.
func Date(b []byte) (unix int64, ok bool) {
	if unix, ok = fixdate(b); ok {
		return unix, true
	}
	text := string(b)
	for _, format := range []string{"Monday, 02-Jan-06 15:04:05 GMT", time.ANSIC} {
		if t, err := time.Parse(format, text); err == nil {
			return t.Unix(), true
		}
	}
	return 0, false
}

const monthNames = "JanFebMarAprMayJunJulAugSepOctNovDec"

// fixdate reads "Sun, 06 Nov 1994 08:49:37 GMT".
func fixdate(b []byte) (unix int64, ok bool) {
	const form = "Sun, 00 Nov 0000 00:00:00 GMT"
	if len(b) != len(form) || string(b[25:]) != " GMT" || b[3] != ',' {
		return 0, false
	}
	for i := 4; i < 25; i++ {
		digit := form[i] == '0'
		if isDigit := b[i]-'0' <= 9; digit != isDigit || !digit && (i < 8 || i > 10) && b[i] != form[i] {
			return 0, false
		}
	}
	month := strings.Index(monthNames, string(b[8:11]))
	if month < 0 || month%3 != 0 {
		return 0, false
	}
	two := func(i int) int { return int(b[i]-'0')*10 + int(b[i+1]-'0') }
	year, day, hour, minute, second := two(12)*100+two(14), two(5), two(17), two(20), two(23)
	if day == 0 || day > 31 || hour > 23 || minute > 59 || second > 60 {
		return 0, false
	}
	t := time.Date(year, time.Month(month/3+1), day, hour, minute, second, 0, time.UTC)
	return t.Unix(), true
}
