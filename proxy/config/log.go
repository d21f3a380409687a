package config

// Log is the sidecar's own log, on standard error.
type Log struct {
	// Lowest level logged. `/log/level` changes it too.
	Level string `yaml:"level" oneof:"debug info warn error"`
	// JSON lines, or text for people.
	Format string `yaml:"format" oneof:"json text" reload:"restart"`
}

func (l *Log) setDefaults() { l.Level, l.Format = LevelInfo, FormatJSON }

// Log levels and formats.
const (
	LevelDebug = "debug"
	LevelInfo  = "info"
	LevelWarn  = "warn"
	LevelError = "error"

	FormatJSON = "json"
	FormatText = "text"
)
