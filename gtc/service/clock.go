package service

import (
	"time"

	"github.com/kafka-gtc/kafka-gtc/gtc"
)

// Clock is the service's only source of time, so that tests and the crash
// suite can drive it.
type Clock interface {
	Now() gtc.Time
	// After runs f once, in its own goroutine, when d has passed; stop
	// prevents it if it has not run yet.
	After(d time.Duration, f func()) (stop func())
}

// SystemClock reads the machine's clocks. Its monotonic reading counts from the
// moment it is made, so it means nothing to another process.
func SystemClock() Clock { return systemClock{start: time.Now()} }

type systemClock struct{ start time.Time }

func (c systemClock) Now() gtc.Time {
	now := time.Now()
	return gtc.Time{Mono: now.Sub(c.start).Milliseconds(), Wall: now.UnixMilli()}
}

func (c systemClock) After(d time.Duration, f func()) func() {
	t := time.AfterFunc(d, f)
	return func() { t.Stop() }
}

// stopwatch measures how long something takes, for the metrics: milliseconds,
// in which the Clock counts, are too coarse for an append.
func stopwatch() (elapsed func() time.Duration) {
	began := time.Now()
	return func() time.Duration { return time.Since(began) }
}
