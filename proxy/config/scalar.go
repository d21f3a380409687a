package config

import (
	"cmp"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// decodeScalar sets v from the text of n, within the bounds of f. After an error v is
// unchanged.
func decodeScalar(n *node, v reflect.Value, f field) error {
	wrong := func() error {
		return fmt.Errorf("expected %s, got %s", f.expected(v.Type()), f.show(n.text))
	}
	if v.Kind() == reflect.String {
		if names := f.names(); len(names) > 0 && !slices.Contains(names, n.text) {
			return fmt.Errorf("%w%s", wrong(), didYouMean(n.text, names))
		}
		v.SetString(n.text)
		return nil
	}
	isText := v.Type() == reflect.TypeFor[time.Duration]() || f.size // a value with a unit is text in YAML, quoted or not
	if n.quoted && !isText {
		return fmt.Errorf("%w in quotes, which makes it a string", wrong())
	}
	switch v.Kind() {
	case reflect.Bool:
		if n.text != "true" && n.text != "false" {
			return wrong()
		}
		v.SetBool(n.text == "true")
		return nil
	case reflect.Float64:
		x, err := strconv.ParseFloat(n.text, 64)
		if err != nil || math.IsNaN(x) || math.IsInf(x, 0) || !within(x, f.in) {
			return fmt.Errorf("%w%s", wrong(), shareHint(n.text, f))
		}
		v.SetFloat(x)
		return nil
	}
	if f.auto != "" && n.text == "auto" {
		x, err := strconv.ParseInt(f.auto, 10, 64)
		v.SetInt(x)
		return err
	}
	x, err := f.parse(n.text, v.Type())
	if err != nil {
		return fmt.Errorf("%w%s", wrong(), unitHint(n.text, err, f, v.Type()))
	}
	if err := f.checkBounds(x, v.Type()); err != nil {
		return fmt.Errorf("%w, got %s", err, f.show(n.text))
	}
	v.SetInt(x)
	return nil
}

// parse reads an integer, size or duration.
func (f field) parse(text string, t reflect.Type) (int64, error) {
	switch {
	case t == reflect.TypeFor[time.Duration]():
		d, err := time.ParseDuration(text)
		return int64(d), err
	case f.size:
		return parseSize(text)
	}
	return parseInt(text)
}

// parseInt reads a plain decimal number. It refuses a leading zero, which some readers
// take for octal and others for decimal.
func parseInt(text string) (int64, error) {
	digits := strings.TrimPrefix(text, "-")
	if strings.HasPrefix(text, "+") || len(digits) > 1 && digits[0] == '0' {
		return 0, strconv.ErrSyntax
	}
	return strconv.ParseInt(text, 10, 64)
}

// sizeUnits are the units of sizes, largest first: formatSize tries them in order.
var sizeUnits = []struct {
	name  string
	bytes int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}

// parseSize reads a number of bytes, with or without a binary unit.
func parseSize(text string) (int64, error) {
	for _, u := range sizeUnits {
		if number, ok := strings.CutSuffix(text, u.name); ok {
			x, err := parseInt(number)
			if err == nil && (x > math.MaxInt64/u.bytes || x < math.MinInt64/u.bytes) {
				err = strconv.ErrRange
			}
			return x * u.bytes, err
		}
	}
	return parseInt(text)
}

// formatSize formats x for parseSize, in the largest unit that divides it.
func formatSize(x int64) string {
	for _, u := range sizeUnits {
		if x != 0 && x%u.bytes == 0 {
			return strconv.FormatInt(x/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(x, 10)
}

// checkBounds returns an error unless x is within the bounds of f.
func (f field) checkBounds(x int64, t reflect.Type) error {
	lowest := int64(0)
	if f.min != "" {
		lowest = f.mustParse(f.min, t)
	}
	if x < lowest {
		return fmt.Errorf("expected at least %s", cmp.Or(f.min, "0"))
	}
	highest := f.max
	if highest == "" && t == reflect.TypeFor[time.Duration]() {
		highest = maxDuration
	}
	if highest != "" && x > f.mustParse(highest, t) {
		return fmt.Errorf("expected at most %s", highest)
	}
	return nil
}

// maxDuration is a year. A longer duration would in effect mean never, and a very
// long one would overflow when the current time is added.
const maxDuration = "8760h"

// mustParse reads a bound in a tag. It panics if the tag is wrong.
func (f field) mustParse(bound string, t reflect.Type) int64 {
	x, err := f.parse(bound, t)
	if err != nil {
		panic("config: bad bound in a struct tag: " + bound)
	}
	return x
}

// within reports whether x is in an interval from 0, such as "(0,1]". The first bracket says
// whether 0 belongs to it; the upper end does.
func within(x float64, interval string) bool {
	return (x > 0 || x == 0 && strings.HasPrefix(interval, "[")) && x <= intervalEnd(interval)
}

// intervalEnd returns the upper end. It panics if the tag is wrong.
func intervalEnd(interval string) float64 {
	_, end, _ := strings.Cut(strings.TrimSuffix(interval, "]"), ",")
	x, err := strconv.ParseFloat(end, 64)
	if err != nil {
		panic("config: bad interval in a struct tag: " + interval)
	}
	return x
}
