// Package redirecttest has the kernel redirect connections of a test, as it does those of intercepted programs.
package redirecttest
