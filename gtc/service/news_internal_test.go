package service

import (
	"fmt"
	"testing"

	"github.com/kafka-gtc/kafka-gtc/txnlog"
)

// said is a record of transaction 5, or of another, with these participants on
// the clusters a, b and so on, and these leftovers on y, z.
func said(state txnlog.State, sequence int64, participants []txnlog.ParticipantState, leftovers ...txnlog.ParticipantState) *txnlog.GlobalTransaction {
	v := &txnlog.GlobalTransaction{State: state, Sequence: sequence, ClusterIDs: []string{"a", "b"}}
	for i, s := range participants {
		v.Participants = append(v.Participants, txnlog.Participant{
			ClusterID: string(rune('a' + i)), ProducerID: 7, ProducerEpoch: 3, State: s, AuditTopic: "t",
		})
	}
	for i, s := range leftovers {
		v.Leftovers = append(v.Leftovers, txnlog.Participant{ClusterID: string(rune('y' + i)), ProducerID: 8, State: s})
	}
	return v
}

const (
	pendingOne  = txnlog.ParticipantPending
	completeOne = txnlog.ParticipantComplete
	abortedOne  = txnlog.ParticipantHeuristicAbort
	unknownOne  = txnlog.ParticipantHeuristicUnknown
	orphanedOne = txnlog.ParticipantOrphaned
)

func both(a, b txnlog.ParticipantState) []txnlog.ParticipantState {
	return []txnlog.ParticipantState{a, b}
}

// words are news as a test writes them.
func words(n news) string {
	names := func(ps []txnlog.Participant) (all string) {
		for _, p := range ps {
			all += p.ClusterID
		}
		return all
	}
	return fmt.Sprintf("ended %v torn %s forgot %s leftovers %s", n.ended, names(n.torn), names(n.forgot), names(n.leftovers))
}

func TestWhatARecordSaysThatTheOneBeforeDidNot(t *testing.T) {
	const commit, completed, abort, aborted = txnlog.StatePrepareCommit, txnlog.StateCompleteCommit, txnlog.StatePrepareAbort, txnlog.StateCompleteAbort
	one := func(s txnlog.ParticipantState) []txnlog.ParticipantState { return []txnlog.ParticipantState{s} }
	for name, tc := range map[string]struct {
		before, now *txnlog.GlobalTransaction
		want        string
	}{
		"a decision":       {said(completed, 4, both(completeOne, completeOne)), said(commit, 5, both(pendingOne, pendingOne)), "ended false torn  forgot  leftovers "},
		"progress":         {said(commit, 5, both(pendingOne, pendingOne)), said(commit, 5, both(completeOne, pendingOne)), "ended false torn  forgot  leftovers "},
		"the end":          {said(commit, 5, both(completeOne, pendingOne)), said(completed, 5, both(completeOne, completeOne)), "ended true torn  forgot  leftovers "},
		"the next session": {said(completed, 5, both(completeOne, completeOne)), said(completed, 5, both(completeOne, completeOne)), "ended false torn  forgot  leftovers "},
		"one phase":        {said(completed, 4, one(completeOne)), said(completed, 5, one(completeOne)), "ended true torn  forgot  leftovers "},
		"torn":             {said(commit, 5, both(completeOne, pendingOne)), said(completed, 5, both(completeOne, abortedOne)), "ended true torn b forgot  leftovers "},
		"torn before":      {said(completed, 5, both(completeOne, abortedOne)), said(completed, 5, both(completeOne, abortedOne), pendingOne), "ended false torn  forgot  leftovers y"},
		"given up":         {said(commit, 5, both(completeOne, pendingOne)), said(completed, 5, both(completeOne, unknownOne)), "ended true torn b forgot  leftovers "},
		"revived":          {said(completed, 5, both(completeOne, unknownOne)), said(commit, 5, both(completeOne, pendingOne)), "ended false torn  forgot  leftovers "},
		"it forgot":        {said(completed, 5, both(completeOne, completeOne)), said(commit, 5, both(completeOne, pendingOne)), "ended false torn  forgot b leftovers "},
		"both forgot":      {said(aborted, 5, both(completeOne, completeOne)), said(abort, 5, both(pendingOne, pendingOne)), "ended false torn  forgot ab leftovers "},
		"it forgot while the other is pending": {
			said(commit, 5, both(completeOne, pendingOne)), said(commit, 5, both(pendingOne, pendingOne)), "ended false torn  forgot a leftovers ",
		},
		"it forgot that it had aborted": {
			said(completed, 5, both(completeOne, abortedOne)), said(commit, 5, both(completeOne, pendingOne)), "ended false torn  forgot b leftovers ",
		},
		"an only one forgot": {said(completed, 5, one(completeOne)), said(commit, 5, one(pendingOne)), "ended false torn  forgot a leftovers "},
		"another transaction under the same epoch": {
			said(completed, 5, both(completeOne, completeOne)), said(commit, 6, both(pendingOne, pendingOne)), "ended false torn  forgot  leftovers ",
		},
		"an abort that is orphaned": {
			said(abort, 5, both(completeOne, pendingOne)), said(commit, 6, both(pendingOne, pendingOne), orphanedOne), "ended false torn  forgot  leftovers ",
		},
		"an orphan that had committed": {
			said(completed, 6, both(completeOne, completeOne), orphanedOne), said(completed, 6, both(completeOne, completeOne), txnlog.ParticipantHeuristicCommit), "ended false torn y forgot  leftovers ",
		},
		"a leftover that was torn before": {
			said(completed, 6, both(completeOne, completeOne), unknownOne), said(completed, 6, both(completeOne, completeOne), unknownOne, pendingOne), "ended false torn  forgot  leftovers z",
		},
		"an orphan forgot that it had committed": {
			said(completed, 6, both(completeOne, completeOne), txnlog.ParticipantHeuristicCommit), said(completed, 6, both(completeOne, completeOne), orphanedOne), "ended false torn  forgot y leftovers ",
		},
		"expired": {said(completed, 5, both(completeOne, completeOne)), nil, "ended false torn  forgot  leftovers "},
		"new":     {nil, said(txnlog.StateEmpty, 4, nil), "ended false torn  forgot  leftovers "},
	} {
		if got := words(compare("id", tc.before, tc.now)); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

func TestPendingIsWhatAClusterHasToBeTold(t *testing.T) {
	for want, records := range map[bool][]*txnlog.GlobalTransaction{
		true: {
			said(txnlog.StatePrepareCommit, 5, both(pendingOne, completeOne)),
			said(txnlog.StateCompleteCommit, 5, both(completeOne, completeOne), pendingOne),
			said(txnlog.StateCompleteCommit, 5, both(completeOne, completeOne), unknownOne, orphanedOne),
		},
		false: {
			said(txnlog.StateCompleteCommit, 5, both(completeOne, completeOne)),
			said(txnlog.StateCompleteCommit, 5, both(completeOne, abortedOne), unknownOne),
		},
	} {
		for i, v := range records {
			if got := pending(v); got != want {
				t.Errorf("record %d: pending %v, want %v", i, got, want)
			}
		}
	}
}

// A transaction ends once, however often it is taken up again.
func TestATransactionThatIsReopenedHasEndedBefore(t *testing.T) {
	done := said(txnlog.StateCompleteCommit, 5, both(completeOne, completeOne))
	again := said(txnlog.StatePrepareCommit, 5, both(completeOne, pendingOne))
	next := said(txnlog.StatePrepareCommit, 6, both(pendingOne, pendingOne))
	nextDone := said(txnlog.StateCompleteCommit, 6, both(completeOne, completeOne))
	lost := said(txnlog.StateCompleteCommit, 5, []txnlog.ParticipantState{unknownOne})
	found := said(txnlog.StatePrepareCommit, 5, []txnlog.ParticipantState{pendingOne})
	for name, tc := range map[string]struct {
		records []*txnlog.GlobalTransaction
		want    int // times that it is counted
	}{
		"twice":                              {[]*txnlog.GlobalTransaction{done, again, done, again, done}, 1},
		"and the next":                       {[]*txnlog.GlobalTransaction{done, again, done, next, nextDone}, 2},
		"replaced before it has ended again": {[]*txnlog.GlobalTransaction{done, again, next, nextDone}, 2},
		"one whose end was not known":        {[]*txnlog.GlobalTransaction{lost, found, said(txnlog.StateCompleteCommit, 5, []txnlog.ParticipantState{completeOne})}, 1},
		"forgotten, and a new life with the same number": {[]*txnlog.GlobalTransaction{done, again, nil, done}, 2},
	} {
		r, counted := reopened{}, 0
		var before *txnlog.GlobalTransaction
		for _, now := range tc.records {
			ended := compare("id", before, now).ended
			if !r.follow("id", before, now) && ended {
				counted++
			}
			before = now
		}
		if counted != tc.want {
			t.Errorf("%s: counted %d times, want %d", name, counted, tc.want)
		}
		if len(r) != 0 {
			t.Errorf("%s: %v is kept", name, r)
		}
	}
}
