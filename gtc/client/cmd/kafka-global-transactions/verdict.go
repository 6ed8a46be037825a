package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kafka-gtc/kafka-gtc/gtc/client/inspect"
	"github.com/kafka-gtc/kafka-gtc/wire"
)

// decision is what the coordinator says of one participant's transaction.
type decision string

const (
	decidedCommit decision = "commit"
	decidedAbort  decision = "abort"
	undecided     decision = "undecided"
	lostOutcome   decision = "not known" // nobody can tell, the coordinator neither
)

type (
	described   = wire.DescribeGlobalTransactionsResponseGlobalTransaction
	participant = wire.DescribeGlobalTransactionsResponseGlobalTransactionParticipant
)

// leftover: what an earlier session left open, which State says nothing of.
func leftover(p participant) bool {
	return p.State == wire.ParticipantOrphaned || p.Message != nil && strings.HasPrefix(*p.Message, wire.LeftoverMessage)
}

func decisionOf(tx described, p participant) decision {
	switch {
	case p.State == wire.ParticipantHeuristicCommit: // against its decision, whatever State says of a later one
		return decidedAbort
	case p.State == wire.ParticipantHeuristicAbort:
		return decidedCommit
	case p.State == wire.ParticipantHeuristicUnknown && (leftover(p) || len(tx.Participants) == 1):
		return lostOutcome
	case leftover(p):
		return decidedAbort
	}
	switch tx.State {
	case "PrepareCommit", "CompleteCommit":
		return decidedCommit
	case "PrepareAbort", "CompleteAbort":
		return decidedAbort
	}
	return undecided
}

// verdict compares what a partition shows with the decision.
type verdict string

const (
	nothing     verdict = "nothing" // of this transaction
	agrees      verdict = "agrees"
	unsettled   verdict = "unsettled" // a contradiction, unless it is about to pass
	contradicts verdict = "CONTRADICTS"
	notRead     verdict = "not read"
)

// clockSkew is how far the clocks of coordinator and participant may differ
// where a transaction can be told by time alone.
const clockSkew = 1000

// view is what is known of a transaction in one partition.
type view struct {
	decision  decision
	told      bool // the participant has ended it, so that nothing may be open
	epoch     int16
	named     bool  // the epoch names one transaction, as from transaction.version 2 on
	decidedAt int64 // ms
	compacted bool  // records may go one by one
	open      inspect.OpenTransaction
	shown     inspect.Partition
}

// judge says how a partition and the decision go together, and what is seen.
func (v view) judge() (verdict, string) {
	spans := v.spans()
	if len(spans) == 0 {
		if v.named && v.told && v.open.From >= 0 && v.open.Epoch == v.epoch && v.open.From < v.shown.LogStart {
			return unsettled, fmt.Sprintf("still open after the end, from offset %d on, and the log begins at %d", v.open.From, v.shown.LogStart)
		}
		return nothing, ""
	}
	var words []string
	for _, s := range spans {
		words = append(words, seen(s))
	}
	result, why := v.compare(spans)
	if why != "" {
		words = append(words, why)
	}
	return result, strings.Join(words, "; ")
}

func (v view) compare(spans []inspect.Span) (verdict, string) {
	wrong := func(s inspect.Span) bool {
		return v.decision == decidedCommit && s.End == inspect.Aborted || v.decision == decidedAbort && s.End == inspect.Committed
	}
	right := func(s inspect.Span) bool { return s.End != inspect.Open && !wrong(s) }
	isOpen := func(s inspect.Span) bool { return s.End == inspect.Open }
	switch {
	case v.decision == lostOutcome && !slices.ContainsFunc(spans, isOpen):
		return agrees, "nobody knows how it was to end"
	// Where the epoch does not name a transaction, the wrong one may be a neighbour.
	case slices.ContainsFunc(spans, wrong) && (v.named || !slices.ContainsFunc(spans, right)):
		return contradicts, fmt.Sprintf("%s was decided", v.decision)
	case v.decision == decidedCommit && !v.compacted && spans[0].Records == 0:
		return contradicts, fmt.Sprintf("its records are gone: %s", v.beginning())
	case v.decision == decidedCommit && !v.compacted && v.named && spans[0].Sequence > 0:
		return contradicts, fmt.Sprintf("its beginning is gone (records: %d): %s", spans[0].Sequence, v.beginning())
	case v.told && slices.ContainsFunc(spans, isOpen):
		return unsettled, "still open after the end"
	case v.decision == undecided && !slices.ContainsFunc(spans, isOpen):
		return unsettled, "ended, and nothing was decided"
	}
	return agrees, ""
}

func (v view) beginning() string {
	if v.shown.LogStart > 0 {
		return fmt.Sprintf("the log begins at offset %d", v.shown.LogStart)
	}
	return "the topic was created anew, or lost them"
}

// whole: what was read begins with the transaction's first record, or has nothing
// of it. Offsets are found by time stamps, which a producer chooses.
func (v view) whole() bool {
	spans := v.spans()
	return len(spans) == 0 || spans[0].Records > 0 && (!v.named || spans[0].Sequence == 0)
}

// enough: the marker has been read, and what follows is of others.
func (v view) enough(s inspect.Span) bool {
	if v.decision == undecided || s.Records == 0 {
		return false
	}
	return v.named && s.Epoch > v.epoch || s.Epoch == v.epoch && s.MarkerMillis >= v.decidedAt
}

// spans are those of the transaction: with records where there are any, since
// after them a marker without records has no effect.
func (v view) spans() []inspect.Span {
	all := slices.Clone(v.shown.Spans)
	var ours, filled []inspect.Span
	for i, s := range all {
		if s.End == inspect.Open { // a marker that ends another epoch's records has ended these
			if n := slices.IndexFunc(all[i:], func(s inspect.Span) bool { return s.End != inspect.Open }); n >= 0 {
				m := all[i+n]
				s.End, s.MarkerOffset, s.MarkerEpoch, s.MarkerMillis, s.MarkerCoordinator = m.End, m.MarkerOffset, m.MarkerEpoch, m.MarkerMillis, m.MarkerCoordinator
			}
		}
		overBefore := v.mayBeOverBefore(s) && i+1 < len(all) && all[i+1].Records == 0 && v.isOurs(all[i+1])
		if !overBefore && !v.isOurs(s) {
			continue
		}
		ours = append(ours, s)
		if s.Records > 0 {
			filled = append(filled, s)
		}
	}
	if len(filled) > 0 {
		return filled
	}
	return ours
}

func (v view) isOurs(s inspect.Span) bool {
	decided := v.decision != undecided
	since := s.MarkerMillis >= v.decidedAt-clockSkew
	switch {
	case s.Records > 0 && v.named:
		return s.Epoch == v.epoch
	case s.Records == 0 && v.named && s.MarkerEpoch == v.epoch+1: // Kafka's own marker
		return true
	case s.Records == 0: // the epoch is that of a marker by hand, and of Kafka's for the transaction before
		return decided && since && (s.MarkerEpoch == v.epoch || s.MarkerEpoch == v.epoch+1)
	case s.Epoch != v.epoch:
		return false
	case s.End == inspect.Open: // begun after the decision, it is the next transaction
		return !decided || s.Millis < v.decidedAt
	}
	return decided && since
}

// mayBeOverBefore: aborted before its commit was decided, where time alone tells.
// If it was, by a marker by hand, the next marker is the coordinator's, and ends
// nothing.
func (v view) mayBeOverBefore(s inspect.Span) bool {
	return !v.named && v.decision == decidedCommit && s.Epoch == v.epoch && s.End == inspect.Aborted
}

// seen are the words for a span.
func seen(s inspect.Span) string {
	text := "no record"
	switch {
	case s.Records == 1:
		text = fmt.Sprintf("1 record at offset %d", s.First)
	case s.Records > 1:
		text = fmt.Sprintf("%d records at offsets %d to %d", s.Records, s.First, s.Last)
	}
	if s.End == inspect.Open {
		return text + ", open"
	}
	marker := map[inspect.End]string{inspect.Committed: "commit", inspect.Aborted: "abort"}[s.End]
	return fmt.Sprintf("%s, %s marker at offset %d (coordinator epoch %d)", text, marker, s.MarkerOffset, s.MarkerCoordinator)
}
