package config

import "reflect"

// defaulted is a part of a file whose keys have defaults other than zero.
type defaulted interface {
	setDefaults()
}

// withDefaults returns what a part of a file is if no key is set.
func withDefaults[T any]() (t T) {
	setDefaults(reflect.ValueOf(&t).Elem())
	return t
}

// setDefaults sets the defaults of v and of the structs in it, if it is a struct.
func setDefaults(v reflect.Value) {
	if v.Kind() != reflect.Struct {
		return
	}
	if d, ok := v.Addr().Interface().(defaulted); ok {
		d.setDefaults()
	}
	for i := range v.NumField() {
		setDefaults(v.Field(i))
	}
}
