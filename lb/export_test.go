package lb

// RaceEnabled is raceEnabled for the tests in package lb_test.
const RaceEnabled = raceEnabled
