//go:build !race

package dubbo

const raceEnabled = false
