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
	at := Voted(order.Participant.StartMillis, 1)
	e := NewEnding(order, &at)
	for e.Next() != AskNothing && e.Next() != AskMarkers {
		switch e.Next() {
		case AskBroker, AskBrokerAnew:
			e.Connected(1, order.Participant.EndTxnVersion, EndTxnBumps, false)
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

// C-PART-9. What a process knows of its ends is kept by (P, E), which below EndTxn v5
// names many transactions.
func TestWhatIsKnownOfAnotherTransactionOfTheEpochIsNotBelieved(t *testing.T) {
	kept := func(at *Attempt, start int64) *Ending {
		p := branch(EndTxnKeeps)
		p.StartMillis = start
		return NewEnding(gtc.EndTxn{ID: "tid", Sequence: 1, Commit: true, Participant: p}, at)
	}
	connected := func(at *Attempt, start int64) Ask {
		e := kept(at, start)
		e.Connected(1, EndTxnKeeps, EndTxnBumps, false)
		return e.Next()
	}
	misses := func(at *Attempt, start int64, n int) (e *Ending) {
		for range n {
			e = kept(at, start)
			e.Connected(1, EndTxnKeeps, EndTxnBumps, false)
			e.Seen(View{CompleteCommit, 7, 4, Unlimited, 9000, "", 0}) // of a later session
			e.Connected(1, EndTxnKeeps, EndTxnBumps, false)
			e.Seen(View{CompleteCommit, 7, 4, Unlimited, 9000, "", 0})
			e.Seen(View{CompleteCommit, 7, 4, Unlimited, 9000, "", 0})
			e.Audited(false, ErrNoMarker)
		}
		return e
	}
	t.Run("voted on", func(t *testing.T) {
		at := Voted(200, 1)
		if ask := connected(&at, 200); ask != AskEnd {
			t.Errorf("asks %d for the one that was voted on, want EndTxn", ask)
		}
	})
	// It voted on the one that began at 200, and a new session dropped the votes. A
	// look from before shows the one of 100, committed long ago, which is told again.
	t.Run("another was voted on", func(t *testing.T) {
		at := Voted(200, 1)
		if ask := connected(&at, 100); ask != AskState {
			t.Errorf("asks %d for the one of before, want a look: EndTxn would commit what is open since 200", ask)
		}
		if ask := connected(&at, 200); ask != AskState {
			t.Errorf("asks %d for the one that was voted on, want a look: the end of the one of before may still arrive", ask)
		}
	})
	t.Run("no start is known", func(t *testing.T) {
		at := Voted(200, 1)
		if ask := connected(&at, 0); ask != AskState {
			t.Errorf("asks %d, want a look: it need not be the one that was voted on", ask)
		}
	})
	t.Run("the end of another is under way", func(t *testing.T) {
		at := Voted(100, 1)
		e := kept(&at, 100)
		e.Connected(1, EndTxnKeeps, EndTxnBumps, false)
		e.Lost(ErrNoMarker, true)
		at = at.Voted(200, 1)
		e = kept(&at, 200)
		e.Connected(1, EndTxnKeeps, EndTxnBumps, false)
		if e.Next() != AskState {
			t.Fatalf("asks %d, want a look", e.Next())
		}
		e.Seen(View{Ongoing, 7, 3, Unlimited, 200, "t", 0})
		e.Answered(0, -1, -1)
		if a := e.Answer(); a.Outcome != gtc.EndDone || a.NextProducerID >= 0 {
			t.Errorf("%+v, want done, and the producer initialised again: the copy would end its next transaction", a)
		}
	})
	t.Run("nothing was found of another", func(t *testing.T) {
		at := Unvoted()
		if e := misses(&at, 100, AuditTries-1); e.Answer().Outcome != gtc.EndRetry {
			t.Fatalf("%+v, want to look again", e.Answer())
		}
		if e := misses(&at, 200, 1); e.Answer().Outcome != gtc.EndRetry {
			t.Errorf("%+v, want to look for this one as often as for any", e.Answer())
		}
	})
}

// C-PART-9. A deposed transaction coordinator that has the commit of the transaction
// before in its cache answers NONE to EndTxn v4 for this one, without an append.
func TestWhoHasNotShownItOpenIsAskedFirst(t *testing.T) {
	for _, tc := range []struct {
		broker  int32
		version int16
		want    Ask
	}{
		{1, EndTxnKeeps, AskEnd},
		{2, EndTxnKeeps, AskState},
		{2, EndTxnBumps, AskEnd}, // the epoch names one transaction
	} {
		p := branch(tc.version)
		at := Voted(p.StartMillis, 1)
		e := NewEnding(gtc.EndTxn{ID: "tid", Sequence: 1, Commit: true, Participant: p}, &at)
		e.Connected(tc.broker, tc.version, EndTxnBumps, false)
		if e.Next() != tc.want {
			t.Errorf("EndTxn v%d, seen open by broker 1: asks %d of broker %d, want %d", tc.version, e.Next(), tc.broker, tc.want)
		}
	}
}

// Below EndTxn v5 a commit that is shown over the connection that there was may be that
// of the transaction before.
func TestACompletionWithoutANameIsAskedForAfresh(t *testing.T) {
	p := txnlog.Participant{ClusterID: "A", ProducerID: 7, ProducerEpoch: 3, EndTxnVersion: EndTxnKeeps}
	before := View{CompleteCommit, 7, 3, Unlimited, 100, "", 0}
	looked := func(t *testing.T) *Ending {
		at := Unvoted()
		e := NewEnding(gtc.EndTxn{ID: "tid", Sequence: 2, Commit: true, OnePhase: true, Fenced: true, Participant: p}, &at)
		e.Connected(1, EndTxnKeeps, EndTxnBumps, false)
		e.Seen(before)
		if e.Next() != AskBrokerAnew {
			t.Fatalf("asks %d after a commit that may be the one before, want to connect anew", e.Next())
		}
		e.Connected(2, EndTxnKeeps, EndTxnBumps, false)
		return e
	}
	t.Run("it is open", func(t *testing.T) {
		e := looked(t)
		e.Seen(View{Ongoing, 7, 3, Unlimited, 200, "t", 0})
		if e.Next() != AskEnd {
			t.Fatalf("asks %d, want EndTxn", e.Next())
		}
		if e.Answered(0, -1, -1); e.Answer().Outcome != gtc.EndDone {
			t.Errorf("%+v, want done", e.Answer())
		}
	})
	t.Run("it is committed", func(t *testing.T) {
		e := looked(t)
		if e.Seen(before); e.Next() != AskNothing || e.Answer().Outcome != gtc.EndDone {
			t.Errorf("%+v, want done", e.Answer())
		}
	})
}
