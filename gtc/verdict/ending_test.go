package verdict

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/kafka-gtc/kafka-gtc/gtc"
	"github.com/kafka-gtc/kafka-gtc/txnlog"
)

// refusedTwice is a try of which EndTxn is refused on both connections and the state
// is v then.
func refusedTwice(t *testing.T, order gtc.EndTxn, code *kerr.Error, v View) *Ending {
	t.Helper()
	at := Voted()
	e := NewEnding(order, &at)
	for e.Next() != AskNothing && e.Next() != AskMarkers {
		switch e.Next() {
		case AskBroker, AskBrokerAnew:
			e.Connected(order.Participant.EndTxnVersion, EndTxnBumps, false)
		case AskEnd:
			e.Answered(code.Code, -1, -1)
		case AskState:
			e.Seen(v)
		case AskMarkers, AskPair, AskNothing:
			t.Fatal("not reached")
		}
	}
	return e
}

// What is not there proves nothing about an only participant: its commit needs no
// record, so it may have been committed before (R5).
func TestNothingThereProvesNothingOfAnOnlyParticipant(t *testing.T) {
	p := func(version int16) txnlog.Participant {
		return txnlog.Participant{ClusterID: "A", ProducerID: 7, ProducerEpoch: 3, EndTxnVersion: version}
	}
	unknownID := View{Unknown, -1, -1, 0, -1, "", 0}
	empty := View{Empty, 7, 3, Unlimited, -1, "", 0}
	before := View{CompleteCommit, 7, 3, Unlimited, 500, "", 0}
	for _, tc := range []struct {
		name    string
		version int16
		commit  bool
		sole    bool
		code    *kerr.Error
		v       View
		want    gtc.EndOutcome
	}{
		{"abort, the id has expired on the cluster", EndTxnBumps, false, true, kerr.InvalidProducerIDMapping, unknownID, gtc.EndUnknown},
		{"commit, the id has expired on the cluster", EndTxnBumps, true, true, kerr.InvalidProducerIDMapping, unknownID, gtc.EndUnknown},
		{"abort, version 4, the id has expired on the cluster", EndTxnKeeps, false, true, kerr.InvalidProducerIDMapping, unknownID, gtc.EndUnknown},
		{"abort, version 4, Empty is shown after a commit too", EndTxnKeeps, false, true, kerr.InvalidTxnState, empty, gtc.EndUnknown},
		{"commit, Empty", EndTxnBumps, true, true, kerr.InvalidTxnState, empty, gtc.EndUnknown},
		{"abort, a deposed coordinator shows the state before", EndTxnBumps, false, true, kerr.InvalidTxnState, before, gtc.EndUnknown},
		{"commit, a deposed coordinator shows the state before", EndTxnBumps, true, true, kerr.InvalidTxnState, before, gtc.EndUnknown},
		// Of several, nobody has sent a commit that no record names.
		{"abort of one of several, unknown id", EndTxnBumps, false, false, kerr.InvalidProducerIDMapping, unknownID, gtc.EndDone},
		{"abort of one of several, Empty", EndTxnKeeps, false, false, kerr.InvalidTxnState, empty, gtc.EndDone},
	} {
		t.Run(tc.name, func(t *testing.T) {
			order := gtc.EndTxn{ID: "tid", Sequence: 1, Participant: p(tc.version), Commit: tc.commit, OnePhase: tc.sole, Fenced: true}
			e := refusedTwice(t, order, tc.code, tc.v)
			if got := e.Answer(); e.Next() != AskNothing || got.Outcome != tc.want {
				t.Errorf("outcome %d (%s), want %d", got.Outcome, got.Detail, tc.want)
			}
		})
	}
}
