package topiclog

import "time"

// stamp is a moment by both clocks of the machine, for what must not take longer
// than the broker remembers. CLOCK_MONOTONIC, which Go reads on Linux, stands still
// while the machine is suspended; the wall clock can be set back. Only when both
// happen is the time between too short, and when the wall clock is set ahead it is
// too long, which costs a writer and no decision.
type stamp struct{ mono, wall time.Time }

func stampOf(now time.Time) stamp { return stamp{mono: now, wall: now.Round(0)} }

// elapsed is the time since s by the clock that shows more.
func (s stamp) elapsed(now time.Time) time.Duration {
	return max(now.Sub(s.mono), now.Round(0).Sub(s.wall))
}
