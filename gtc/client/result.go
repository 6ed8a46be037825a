package client

import (
	"errors"
	"fmt"
	"strings"

	"github.com/kafka-gtc/kafka-gtc/wire"
)

// Outcome is what is known of a transaction.
type Outcome int8

// The outcomes.
const (
	OutcomeUnknown   = Outcome(wire.OutcomeUnknown)
	OutcomeCommitted = Outcome(wire.OutcomeCommitted)
	OutcomeAborted   = Outcome(wire.OutcomeAborted)
)

func (o Outcome) String() string {
	switch o {
	case OutcomeUnknown:
		return "unknown"
	case OutcomeCommitted:
		return "committed"
	case OutcomeAborted:
		return "aborted"
	}
	return fmt.Sprintf("outcome %d", int8(o))
}

// ParticipantState is where one cluster stands after the decision.
type ParticipantState int8

// The states of a participant.
const (
	// ParticipantPending: decided, but the cluster has not acknowledged it.
	ParticipantPending = ParticipantState(wire.ParticipantPending)
	// ParticipantComplete: the cluster has ended the transaction as decided.
	ParticipantComplete = ParticipantState(wire.ParticipantComplete)
	// ParticipantHeuristicCommit: it committed although abort was decided.
	ParticipantHeuristicCommit = ParticipantState(wire.ParticipantHeuristicCommit)
	// ParticipantHeuristicAbort: it aborted although commit was decided.
	ParticipantHeuristicAbort = ParticipantState(wire.ParticipantHeuristicAbort)
	// ParticipantHeuristicUnknown: it has ended, nobody can tell how.
	ParticipantHeuristicUnknown = ParticipantState(wire.ParticipantHeuristicUnknown)
)

// Heuristic reports whether the cluster ended, or may have ended, against the
// decision.
func (s ParticipantState) Heuristic() bool { return s >= ParticipantHeuristicCommit }

func (s ParticipantState) String() string {
	switch s {
	case ParticipantPending:
		return "pending"
	case ParticipantComplete:
		return "complete"
	case ParticipantHeuristicCommit:
		return "heuristic commit"
	case ParticipantHeuristicAbort:
		return "heuristic abort"
	case ParticipantHeuristicUnknown:
		return "heuristic unknown"
	}
	return fmt.Sprintf("state %d", int8(s))
}

// Result is what became of a transaction.
type Result struct {
	Outcome Outcome
	// Participants are the clusters that were written to, in the order of
	// their names.
	Participants []ParticipantResult
	// Reason is why the coordinator decided abort; empty otherwise.
	Reason string
	// mixed: the coordinator called the outcome heuristic.
	mixed bool
}

// ParticipantResult is where one cluster stands.
type ParticipantResult struct {
	Cluster   string // the name in Options.Clusters
	ClusterID string
	State     ParticipantState
	Message   string // what the coordinator has to say of it, for people
}

// Pending names the clusters that have not ended the transaction yet. When
// there are none, and the outcome is known, it is durable on every cluster; a
// read_committed reader sees it when the markers are written (Txn.WaitVisible).
func (r Result) Pending() []string {
	var names []string
	for _, p := range r.Participants {
		if p.State == ParticipantPending {
			names = append(names, p.Cluster)
		}
	}
	return names
}

// clusters names those that were written to.
func (r Result) clusters() []string {
	var names []string
	for _, p := range r.Participants {
		names = append(names, p.Cluster)
	}
	return names
}

// Complete reports whether the outcome is known and every cluster has ended the
// transaction as decided.
func (r Result) Complete() bool {
	for _, p := range r.Participants {
		if p.State != ParticipantComplete {
			return false
		}
	}
	return r.Outcome != OutcomeUnknown
}

func (r Result) heuristic() bool {
	if r.mixed {
		return true
	}
	for _, p := range r.Participants {
		if p.State.Heuristic() {
			return true
		}
	}
	return false
}

// heuristicError is nil, or says that the clusters differ.
func (r Result) heuristicError() error {
	if !r.heuristic() {
		return nil
	}
	return &HeuristicError{Result: r}
}

// message is what is known of the clusters that are not complete.
func (r Result) message() string {
	var b strings.Builder
	for _, p := range r.Participants {
		if p.Message != "" {
			fmt.Fprintf(&b, "cluster %q: %s; ", p.Cluster, p.Message)
		}
	}
	return strings.TrimSuffix(b.String(), "; ")
}

// commitError is Commit's error for a known outcome.
func (r Result) commitError() error {
	switch {
	case r.heuristic():
		return &HeuristicError{Result: r}
	case r.Outcome == OutcomeAborted:
		return &AbortedError{Cause: r.reason()}
	}
	return nil
}

// abortError is Abort's error for a known outcome.
func (r Result) abortError() error {
	switch {
	case r.heuristic():
		return &HeuristicError{Result: r}
	case r.Outcome == OutcomeCommitted:
		return ErrCommitted
	}
	return nil
}

func (r Result) reason() error {
	if r.Reason == "" {
		return errors.New("the coordinator decided abort")
	}
	return errors.New(r.Reason)
}
