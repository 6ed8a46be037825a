package main

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/gtc/client/inspect"
	"github.com/kafka-gtc/kafka-gtc/wire"
)

const (
	decidedMillis = 1_000_000
	ourEpoch      = 7
)

// records of an epoch, n of them, the first of which has this offset and number.
func records(epoch int16, n, first int64, sequence int32) inspect.Span {
	return inspect.Span{
		Epoch: epoch, Records: n, First: first, Last: first + n - 1, Sequence: sequence, Millis: decidedMillis - 500,
		End: inspect.Open, MarkerOffset: -1, MarkerEpoch: -1, MarkerMillis: -1, MarkerCoordinator: -1,
	}
}

func noRecord() inspect.Span { return inspect.Span{Epoch: -1, First: -1, Last: -1, Sequence: -1} }

func marked(s inspect.Span, end inspect.End, epoch int16, millis int64) inspect.Span {
	s.End, s.MarkerOffset, s.MarkerEpoch, s.MarkerMillis, s.MarkerCoordinator = end, 50, epoch, millis, 3
	return s
}

// sights are all that a partition can show of the transaction, and the verdict for
// each decision. After a commit and an abort the participant has been told.
var sights = map[string]struct {
	named, compacted            bool
	logStart                    int64
	open                        inspect.OpenTransaction
	spans                       []inspect.Span
	commit, abort, none, unsure verdict
}{
	"nothing": {named: true, commit: nothing, abort: nothing, none: nothing, unsure: nothing},
	"others' records and markers": {
		named: true, spans: []inspect.Span{
			marked(records(6, 1, 40, 0), inspect.Committed, 7, decidedMillis-5000), marked(records(8, 1, 51, 0), inspect.Aborted, 9, decidedMillis+5),
		},
		commit: nothing, abort: nothing, none: nothing, unsure: nothing,
	},
	"commit marker": {
		named: true, spans: []inspect.Span{marked(records(7, 3, 40, 0), inspect.Committed, 8, decidedMillis+5)},
		commit: agrees, abort: contradicts, none: unsettled, unsure: agrees,
	},
	"abort marker": {
		named: true, spans: []inspect.Span{marked(records(7, 3, 40, 0), inspect.Aborted, 8, decidedMillis+5)},
		commit: contradicts, abort: agrees, none: unsettled, unsure: agrees,
	},
	"abort marker by hand, long before the commit's": {
		named: true, spans: []inspect.Span{
			marked(records(7, 3, 40, 0), inspect.Aborted, 7, decidedMillis-50_000), marked(noRecord(), inspect.Committed, 8, decidedMillis+5),
		},
		commit: contradicts, abort: agrees, none: unsettled, unsure: agrees,
	},
	"abort marker by hand, with records after it": {
		named: true, spans: []inspect.Span{
			marked(records(7, 3, 40, 0), inspect.Aborted, 7, decidedMillis-50_000), marked(records(7, 1, 46, 3), inspect.Committed, 8, decidedMillis+5),
		},
		commit: contradicts, abort: contradicts, none: unsettled, unsure: agrees,
	},
	"abort marker by hand, after the commit's": {
		named: true, spans: []inspect.Span{
			marked(records(7, 3, 40, 0), inspect.Committed, 8, decidedMillis+5), marked(noRecord(), inspect.Aborted, 8, decidedMillis+5000),
		},
		commit: agrees, abort: contradicts, none: unsettled, unsure: agrees,
	},
	"open": {
		named: true, spans: []inspect.Span{records(7, 3, 40, 0)}, open: inspect.OpenTransaction{From: 40, Epoch: 7},
		commit: unsettled, abort: unsettled, none: agrees, unsure: unsettled,
	},
	"open, and its records deleted": {
		named: true, logStart: 60, open: inspect.OpenTransaction{From: 40, Epoch: 7},
		commit: unsettled, abort: unsettled, none: nothing, unsure: unsettled,
	},
	"ended by the marker of the next epoch": {
		named: true, spans: []inspect.Span{records(7, 3, 40, 0), marked(records(8, 1, 43, 0), inspect.Aborted, 9, decidedMillis+5)},
		commit: contradicts, abort: agrees, none: unsettled, unsure: agrees,
	},
	"commit marker, all records deleted": {
		named: true, logStart: 44, spans: []inspect.Span{marked(noRecord(), inspect.Committed, 8, decidedMillis+5)},
		commit: contradicts, abort: contradicts, none: unsettled, unsure: agrees,
	},
	"commit marker in a topic created anew": {
		named: true, spans: []inspect.Span{marked(noRecord(), inspect.Committed, 8, decidedMillis+5)},
		commit: contradicts, abort: contradicts, none: unsettled, unsure: agrees,
	},
	"commit marker, first records deleted": {
		named: true, logStart: 41, spans: []inspect.Span{marked(records(7, 2, 41, 1), inspect.Committed, 8, decidedMillis+5)},
		commit: contradicts, abort: contradicts, none: unsettled, unsure: agrees,
	},
	"abort marker, first records deleted": {
		named: true, logStart: 41, spans: []inspect.Span{marked(records(7, 2, 41, 1), inspect.Aborted, 8, decidedMillis+5)},
		commit: contradicts, abort: agrees, none: unsettled, unsure: agrees,
	},
	"commit marker, records compacted": {
		named: true, compacted: true, logStart: 44, spans: []inspect.Span{marked(noRecord(), inspect.Committed, 8, decidedMillis+5)},
		commit: agrees, abort: contradicts, none: unsettled, unsure: agrees,
	},
	"commit marker, some records compacted": {
		named: true, compacted: true, spans: []inspect.Span{marked(records(7, 1, 42, 2), inspect.Committed, 8, decidedMillis+5)},
		commit: agrees, abort: contradicts, none: unsettled, unsure: agrees,
	},
	"the embedded broker's marker, which has the epoch of the records": {
		named: true, logStart: 44, spans: []inspect.Span{marked(noRecord(), inspect.Committed, 7, decidedMillis+5)},
		commit: contradicts, abort: contradicts, none: nothing, unsure: agrees,
	},
	"Kafka's marker of the transaction before": {
		named: true, spans: []inspect.Span{marked(noRecord(), inspect.Aborted, 7, decidedMillis-2*clockSkew)},
		commit: nothing, abort: nothing, none: nothing, unsure: nothing,
	},

	"one epoch for all: the transactions before": {
		spans:  []inspect.Span{marked(records(7, 1, 40, 0), inspect.Aborted, 7, decidedMillis-5000), marked(records(7, 1, 42, 1), inspect.Committed, 7, decidedMillis-4000)},
		commit: nothing, abort: nothing, none: nothing, unsure: nothing,
	},
	"one epoch for all: commit marker": {
		spans:  []inspect.Span{marked(records(7, 1, 40, 0), inspect.Aborted, 7, decidedMillis-5000), marked(records(7, 1, 42, 1), inspect.Committed, 7, decidedMillis+5)},
		commit: agrees, abort: contradicts, none: nothing, unsure: agrees,
	},
	"one epoch for all: abort marker": {
		spans:  []inspect.Span{marked(records(7, 1, 42, 1), inspect.Aborted, 7, decidedMillis+5)},
		commit: contradicts, abort: agrees, none: nothing, unsure: agrees,
	},
	"one epoch for all: fenced": {
		spans:  []inspect.Span{marked(records(7, 1, 42, 1), inspect.Aborted, 8, decidedMillis+5)},
		commit: contradicts, abort: agrees, none: nothing, unsure: agrees,
	},
	"one epoch for all: neighbours that end in both ways": {
		spans:  []inspect.Span{marked(records(7, 1, 40, 0), inspect.Aborted, 7, decidedMillis-300), marked(records(7, 1, 42, 1), inspect.Committed, 7, decidedMillis+5)},
		commit: agrees, abort: agrees, none: nothing, unsure: agrees,
	},
	"one epoch for all: abort marker by hand, long before the commit's": {
		spans:  []inspect.Span{marked(records(7, 1, 40, 0), inspect.Aborted, 7, decidedMillis-50_000), marked(noRecord(), inspect.Committed, 7, decidedMillis+5)},
		commit: contradicts, abort: contradicts, none: nothing, unsure: agrees,
	},
	"one epoch for all: commit marker, all records deleted": {
		logStart: 44, spans: []inspect.Span{marked(noRecord(), inspect.Committed, 7, decidedMillis+5)},
		commit: contradicts, abort: contradicts, none: nothing, unsure: agrees,
	},
	"one epoch for all: open": {
		spans:  []inspect.Span{records(7, 3, 40, 9)},
		commit: unsettled, abort: unsettled, none: agrees, unsure: unsettled,
	},
	"one epoch for all: the next transaction is open": {
		spans:  []inspect.Span{marked(records(7, 1, 40, 0), inspect.Committed, 7, decidedMillis+5), begunAt(decidedMillis+100, records(7, 1, 42, 1))},
		commit: agrees, abort: contradicts, none: agrees, unsure: agrees,
	},
}

func begunAt(millis int64, s inspect.Span) inspect.Span {
	s.Millis = millis
	return s
}

func TestEveryRowOfWhatAPartitionCanShow(t *testing.T) {
	for name, s := range sights {
		for d, want := range map[decision]verdict{decidedCommit: s.commit, decidedAbort: s.abort, undecided: s.none, lostOutcome: s.unsure} {
			if s.open == (inspect.OpenTransaction{}) {
				s.open.From = -1
			}
			v := view{
				decision: d, told: d != undecided, epoch: ourEpoch, named: s.named, decidedAt: decidedMillis, compacted: s.compacted,
				open: s.open, shown: inspect.Partition{LogStart: s.logStart, From: s.logStart, Spans: s.spans},
			}
			got, says := v.judge()
			if got != want || (says == "") != (got == nothing) {
				t.Errorf("%s, decision %q: %s (%s), want %s", name, d, got, says, want)
			}
			if v.told = false; got == unsettled && d != undecided {
				if got, says := v.judge(); got == unsettled || got == contradicts {
					t.Errorf("%s, decision %q, not told yet: %s (%s)", name, d, got, says)
				}
			}
		}
	}
}

func TestWhatIsSeenIsSaid(t *testing.T) {
	for name, want := range map[string]string{
		"commit marker":                      "3 records at offsets 40 to 42, commit marker at offset 50 (coordinator epoch 3)",
		"abort marker":                       "3 records at offsets 40 to 42, abort marker at offset 50 (coordinator epoch 3); commit was decided",
		"open":                               "3 records at offsets 40 to 42, open; still open after the end",
		"open, and its records deleted":      "still open after the end, from offset 40 on, and the log begins at 60",
		"commit marker, all records deleted": "no record, commit marker at offset 50 (coordinator epoch 3); its records are gone: the log begins at offset 44",
		"commit marker in a topic created anew": "no record, commit marker at offset 50 (coordinator epoch 3); " +
			"its records are gone: the topic was created anew, or lost them",
		"commit marker, first records deleted": "2 records at offsets 41 to 42, commit marker at offset 50 (coordinator epoch 3); " +
			"its beginning is gone (records: 1): the log begins at offset 41",
	} {
		s := sights[name]
		v := view{
			decision: decidedCommit, told: true, epoch: ourEpoch, named: true, decidedAt: decidedMillis, open: s.open,
			shown: inspect.Partition{LogStart: s.logStart, From: s.logStart, Spans: s.spans},
		}
		if _, says := v.judge(); says != want {
			t.Errorf("%s:\n got %s\nwant %s", name, says, want)
		}
	}
}

// The reading begins once more where the first record was not there, and ends
// with the marker.
func TestWhatWasReadIsWholeAndEnough(t *testing.T) {
	for name, c := range map[string]struct {
		named, whole, enough bool
		span                 inspect.Span
	}{
		"its first record and its marker":   {true, true, true, marked(records(7, 3, 40, 0), inspect.Committed, 8, decidedMillis)},
		"its marker, before the decision":   {true, true, false, marked(records(7, 3, 40, 0), inspect.Aborted, 7, decidedMillis-1)},
		"a later record of it":              {true, false, true, marked(records(7, 3, 40, 2), inspect.Committed, 8, decidedMillis)},
		"its marker alone":                  {true, false, false, marked(noRecord(), inspect.Committed, 8, decidedMillis)},
		"the transaction after":             {true, true, true, marked(records(8, 3, 40, 0), inspect.Committed, 9, decidedMillis)},
		"the transaction before":            {true, true, false, marked(records(6, 3, 40, 0), inspect.Committed, 7, decidedMillis)},
		"one epoch for all: records":        {false, true, true, marked(records(7, 3, 40, 9), inspect.Committed, 7, decidedMillis)},
		"one epoch for all: a marker alone": {false, false, false, marked(noRecord(), inspect.Committed, 7, decidedMillis)},
	} {
		v := view{
			decision: decidedCommit, told: true, epoch: ourEpoch, named: c.named, decidedAt: decidedMillis,
			shown: inspect.Partition{Spans: []inspect.Span{c.span}},
		}
		if v.whole() != c.whole || v.enough(c.span) != c.enough {
			t.Errorf("%s: whole %v, enough %v", name, v.whole(), v.enough(c.span))
		}
	}
}

func TestTheDecisionAboutAParticipant(t *testing.T) {
	left := kmsg.StringPtr(wire.LeftoverMessage + "away")
	for _, c := range []struct {
		state        string
		participants int
		p            participant
		want         decision
	}{
		{"CompleteCommit", 2, participant{State: wire.ParticipantComplete}, decidedCommit},
		{"PrepareCommit", 2, participant{}, decidedCommit},
		{"PrepareAbort", 2, participant{}, decidedAbort},
		{"CompleteAbort", 1, participant{State: wire.ParticipantComplete}, decidedAbort},
		{"Ongoing", 2, participant{}, undecided},
		{"Ongoing", 2, participant{State: wire.ParticipantHeuristicAbort}, decidedCommit},
		{"CompleteCommit", 3, participant{State: wire.ParticipantHeuristicCommit}, decidedAbort},
		{"CompleteCommit", 2, participant{State: wire.ParticipantHeuristicUnknown}, decidedCommit},
		{"CompleteCommit", 1, participant{State: wire.ParticipantHeuristicUnknown}, lostOutcome},
		{"CompleteCommit", 3, participant{Message: left}, decidedAbort},
		{"CompleteCommit", 3, participant{State: wire.ParticipantOrphaned}, decidedAbort},
		{"CompleteCommit", 3, participant{State: wire.ParticipantHeuristicUnknown, Message: left}, lostOutcome},
	} {
		tx := described{State: c.state, Participants: make([]participant, c.participants)}
		if got := decisionOf(tx, c.p); got != c.want {
			t.Errorf("%s, %+v: %q, want %q", c.state, c.p, got, c.want)
		}
	}
}

func TestACommitHasToHaveLeftSomething(t *testing.T) {
	seen := func(d decision, verdicts ...verdict) (all []finding) {
		for i, v := range verdicts {
			all = append(all, finding{Topic: "t", TopicID: "x", Partition: int32(i), Decision: d, Verdict: v})
		}
		return all
	}
	if got := missing(seen(decidedCommit, nothing, nothing), "t"); len(got) != 1 || got[0].Verdict != contradicts || got[0].TopicID != "x" || got[0].Partition != -1 {
		t.Errorf("a topic: %+v", got)
	}
	if got := missing(seen(decidedCommit, nothing, nothing), ""); len(got) != 1 || got[0].Verdict != contradicts || got[0].TopicID != "" {
		t.Errorf("a participant: %+v", got)
	}
	for _, looked := range [][]finding{
		nil, seen(decidedAbort, nothing), seen(undecided, nothing), seen(decidedCommit, nothing, agrees), seen(decidedCommit, nothing, notRead),
	} {
		if got := missing(looked, "t"); got != nil {
			t.Errorf("%+v: %+v", looked, got)
		}
	}
}

func TestTheExitCodeOfVerify(t *testing.T) {
	on := []string{"--bootstrap-server", "127.0.0.1:1", "verify", "id", "--timeout", "3s"}
	for _, c := range []struct {
		args []string
		says string
	}{
		{nil, "topic all-topics"},
		{[]string{"--topic", "t"}, "--participant is missing"},
		{[]string{"--topic", "t", "--participant", "us"}, "--participant us: it has the form NAME=VALUE"},
		{[]string{"--topic", "t", "--participant", "us=127.0.0.1:1", "--participant", "us=127.0.0.1:2"}, "us is there twice"},
		{[]string{"--topic", "eu:t", "--participant", "us=127.0.0.1:1"}, "--topic eu:t: before the colon"},
		{[]string{"--topic", "t", "--participant", "us=127.0.0.1:1", "--participant-config", "eu=x"}, "no --participant has this name"},
		{[]string{"--topic", "t", "--participant", "us=127.0.0.1:1", "--participant-config", "us=/none"}, "/none"},
		{[]string{"--topic", "t", "--participant", "us=127.0.0.1:1"}, "--participant us=127.0.0.1:1"},
		{[]string{"--weird"}, "--weird"},
	} {
		cmd := command()
		cmd.SetArgs(append(on, c.args...))
		was, err := cmd.ExecuteContextC(t.Context())
		if err == nil || exitCode(was, err) != 2 || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v: %v, want exit code 2 and %q", c.args, err, c.says)
		}
	}
	if err := judged([]finding{{Verdict: agrees}, {Verdict: nothing}}); err != nil {
		t.Errorf("all agrees: %v", err)
	}
	verify, _, err := command().Find([]string{"verify"})
	if err != nil {
		t.Fatal(err)
	}
	if err := judged([]finding{{Verdict: notRead}, {Verdict: contradicts}}); exitCode(verify, err) != 1 {
		t.Errorf("a contradiction: %v", err)
	}
	if err := judged([]finding{{Verdict: notRead}, {Verdict: agrees}}); exitCode(verify, err) != 2 {
		t.Errorf("not looked at: %v", err)
	}
	if exitCode(command(), contradictionError{}) != 1 {
		t.Error("another command")
	}
}
