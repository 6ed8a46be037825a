package verdict

import (
	"testing"

	"github.com/kafka-gtc/kafka-gtc/txnlog"
)

// branch is the participant transaction of these tests: producer id 7, epoch 3,
// begun at 1000.
func branch(version int16) txnlog.Participant {
	return txnlog.Participant{
		ClusterID: "A", ProducerID: 7, ProducerEpoch: 3, EndTxnVersion: version,
		AuditTopic: "t", StartMillis: 1000,
	}
}

// What the state of the transaction coordinator proves about producer id 7,
// epoch 3, begun at 1000 (or, seen=false, never seen open).
func TestWhatTheStateProves(t *testing.T) {
	const yes, no = true, false
	for _, tc := range []struct {
		state   State
		pid     int64
		epoch   int16
		start   int64
		version int16
		seen    bool
		want    finding
	}{
		// Version 5: the epoch names the transaction.
		{"Ongoing", 7, 3, 1000, 5, yes, stillOpen},
		{"Ongoing", 7, 4, 1500, 5, yes, movedOn}, // the next one is open
		{"PrepareCommit", 7, 4, 1000, 5, yes, ending},
		{"PrepareAbort", 7, 4, 1000, 5, yes, ending},
		{"CompleteCommit", 7, 4, 1000, 5, yes, committed},
		{"CompleteAbort", 7, 4, 1000, 5, yes, aborted},
		{"CompleteCommit", 7, 4, 1000, 5, no, committed},
		{"CompleteAbort", 7, 4, 1000, 5, no, aborted},
		{"CompleteAbort", 7, 4, 1500, 5, yes, movedOn}, // an old client ended with v4
		{"CompleteCommit", 7, 5, 1500, 5, yes, movedOn},
		{"CompleteCommit", 7, 3, 500, 5, no, neverBegun}, // the transaction before
		{"CompleteAbort", 7, 3, 500, 5, no, neverBegun},
		{"CompleteCommit", 7, 3, 500, 5, yes, movedOn}, // was open, is not, lost
		{"Empty", 7, 3, -1, 5, no, neverBegun},
		{"Empty", 7, 3, -1, 5, yes, movedOn},
		{"Empty", 7, 4, -1, 5, yes, movedOn},
		{"Empty", 7, 5, -1, 5, no, movedOn},
		{"CompleteCommit", 8, 0, 1000, 5, yes, movedOn}, // another producer id, and not at the ceiling
		{"", -1, -1, -1, 5, yes, movedOn},
		{"SomethingNew", 7, 4, 1000, 5, yes, movedOn},
		// Version 4: the start time does.
		{"Ongoing", 7, 3, 1000, 4, yes, stillOpen},
		{"Ongoing", 7, 3, 1500, 4, yes, movedOn}, // the next one, at the same epoch
		{"Ongoing", 7, 3, 1500, 4, no, stillOpen},
		{"PrepareCommit", 7, 3, 1000, 4, yes, ending},
		{"CompleteCommit", 7, 3, 1000, 4, yes, committed},
		{"CompleteAbort", 7, 3, 1000, 4, yes, aborted},
		{"CompleteAbort", 7, 4, 1000, 4, yes, aborted}, // fenced, or timed out
		{"CompleteAbort", 7, 4, 1500, 4, yes, movedOn}, // of the session after
		{"CompleteAbort", 7, 4, 1000, 4, no, movedOn},
		{"CompleteCommit", 7, 3, 1500, 4, yes, movedOn}, // the next one
		{"CompleteCommit", 7, 3, 500, 4, no, movedOn},   // perhaps the one before
		{"CompleteAbort", 7, 3, 500, 4, no, aborted},
		{"Empty", 7, 3, -1, 4, no, neverBegun},
		{"Empty", 7, 4, 1000, 4, yes, movedOn}, // 3.9.1 keeps the start time
		{"CompleteCommit", 8, 0, 1000, 4, yes, movedOn},
	} {
		p := branch(tc.version)
		if !tc.seen {
			p.AuditTopic, p.StartMillis = "", 0
		}
		v := View{State: tc.state, ProducerID: tc.pid, ProducerEpoch: tc.epoch, StartMillis: tc.start}
		if got := v.outcome(p, tc.version, false); got != tc.want {
			t.Errorf("v%d, seen open %v: %v begun at %d: %d, want %d", tc.version, tc.seen, v, tc.start, got, tc.want)
		}
	}
	ceiling := branch(5)
	ceiling.ProducerEpoch = LastEpoch
	v := View{State: CompleteCommit, ProducerID: 8, ProducerEpoch: 0, StartMillis: 1000}
	if got := v.outcome(ceiling, 5, false); got != committed {
		t.Errorf("after the epoch ceiling: %d, want committed", got)
	}
	ceiling.AuditTopic, ceiling.StartMillis = "", 0
	for sole, want := range map[bool]finding{true: committed, false: movedOn} {
		if got := v.outcome(ceiling, 5, sole); got != want {
			t.Errorf("after the epoch ceiling, never seen open, the only one %v: %d, want %d", sole, got, want)
		}
	}
}
