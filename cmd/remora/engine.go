package main

import (
	"fmt"
	"os"

	"github.com/remora-proxy/remora/proxy/reactor/engine"
)

// engineVariable of the environment names an engine. It overrides a file, and --engine sets it.
const engineVariable = "REMORA_ENGINE"

// chooseEngine returns the engine of the environment, or else the configured one. The error names the setting.
func chooseEngine(configured string) (engine.Engine, error) {
	name, setting := os.Getenv(engineVariable), engineVariable
	if name == "" {
		name, setting = configured, "engine"
	}
	chosen, err := engine.Find(name)
	if err != nil {
		return engine.Engine{}, fmt.Errorf("%s: %w", setting, err)
	}
	return chosen, nil
}

// setEngine makes the value of --engine the environment's, for this process and its successors. "" changes nothing.
func setEngine(flag string) error {
	if flag == "" {
		return nil
	}
	if _, err := engine.Find(flag); err != nil {
		return fmt.Errorf("--engine: %w", err)
	}
	return os.Setenv(engineVariable, flag)
}
