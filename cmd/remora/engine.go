package main

import (
	"fmt"
	"os"

	"github.com/remora-proxy/remora/proxy/reactor/engine"
)

// engineVariable of the environment names an engine. It overrides the file.
const engineVariable = "REMORA_ENGINE"

// chooseEngine returns the engine of --engine, or else that of the environment, or else that of the file. The error
// names the setting.
func chooseEngine(flag, configured string) (engine.Kind, error) {
	for _, setting := range []struct{ name, value string }{
		{"--engine", flag}, {engineVariable, os.Getenv(engineVariable)}, {"engine", configured},
	} {
		if setting.value == "" {
			continue
		}
		kind, err := engine.Find(setting.value)
		if err != nil {
			err = fmt.Errorf("%s: %w", setting.name, err)
		}
		return kind, err
	}
	return engine.Find(engine.Auto)
}
