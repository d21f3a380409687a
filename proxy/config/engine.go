package config

// EngineAuto is the engine that fits the system.
const EngineAuto = "auto"

// Engines may wait for the sockets of the loops.
var Engines = []string{EngineAuto, "epoll", "gnet"}
