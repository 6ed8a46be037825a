package client

import (
	"errors"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Errors of the wrong order of calls.
var (
	// ErrClosed: the client was closed.
	ErrClosed = errors.New("client: closed")
	// ErrTxnOpen: the transaction before has to be ended first, by Commit or
	// Abort, again if its outcome is not known.
	ErrTxnOpen = errors.New("client: the transaction before is not ended: call its Commit or Abort until the outcome is known")
	// ErrTxnEnded: the transaction takes no more records.
	ErrTxnEnded = errors.New("client: the transaction is ending or has ended")
	// ErrTxnOld: the first record or offset came so long after Begin that the
	// coordinator may have forgotten the id, and would not end the transaction
	// if this client died. It is refused and the transaction aborts; begin
	// another. Half an hour after Begin is early enough.
	ErrTxnOld = errors.New("client: the first record comes too long after Begin: begin another transaction")
	// ErrCommitted is Abort's answer when commit had been asked for before
	// and has won.
	ErrCommitted = errors.New("client: the transaction was already committed")
	// ErrBefore is the cause in an AbortedError when the transaction that was
	// begun before this one, in a ring, was not committed.
	ErrBefore = errors.New("client: the transaction begun before was not committed")
	// ErrAborted is the cause in an AbortedError when the application itself
	// called Abort before.
	ErrAborted = errors.New("client: the application aborted the transaction")
)

// AbortedError says that nothing of the transaction is visible, on any cluster,
// and never will be. The application may do the work again in a new
// transaction.
type AbortedError struct {
	// Cause is why: a *RecordError, an error of CommitOffsets, a
	// *ProducerError, ErrTxnOld, ErrAborted, ErrBefore, or the coordinator's
	// reason.
	Cause error
}

func (e *AbortedError) Error() string {
	return "client: the transaction was aborted: " + e.Cause.Error()
}

// Unwrap gives the cause.
func (e *AbortedError) Unwrap() error { return e.Cause }

var errNilRecord = errors.New("the record is nil")

// RecordError says that a record was not written, which is why its transaction
// cannot be committed.
type RecordError struct {
	Cluster string
	Topic   string
	Err     error
}

func (e *RecordError) Error() string {
	return fmt.Sprintf("a record for topic %q on cluster %q was not written: %v", e.Topic, e.Cluster, e.Err)
}

// Unwrap gives kgo's error.
func (e *RecordError) Unwrap() error { return e.Err }

// WrongClusterError says that offsets are of a group of a cluster that takes no
// part in the transaction.
type WrongClusterError struct {
	Group     string
	ClusterID string // of the group
}

func (e *WrongClusterError) Error() string {
	return fmt.Sprintf("offsets of group %q belong to the cluster with id %s, which is not among Options.Clusters", e.Group, e.ClusterID)
}

// StaleGroupError says that offsets were refused because the group has moved on:
// the partitions may be somebody else's by now, who has not seen these offsets.
// The records are to be read again, from the group's committed offsets.
type StaleGroupError struct {
	Cluster string
	Group   string
	Err     error
}

func (e *StaleGroupError) Error() string {
	return fmt.Sprintf("group %q on cluster %q has moved on without this member: %v", e.Group, e.Cluster, e.Err)
}

// Unwrap gives Kafka's error.
func (e *StaleGroupError) Unwrap() error { return e.Err }

// OffsetsError says that offsets of a group were not committed, which is why
// their transaction cannot be.
type OffsetsError struct {
	Cluster string
	Group   string
	Err     error
}

func (e *OffsetsError) Error() string {
	return fmt.Sprintf("offsets of group %q on cluster %q were not committed: %v", e.Group, e.Cluster, e.Err)
}

// Unwrap gives Kafka's error.
func (e *OffsetsError) Unwrap() error { return e.Err }

// ProducerError says that a participant's producer is not the one that the
// transaction began with, so what it wrote before is aborted already.
type ProducerError struct {
	Cluster string
	Err     error
}

func (e *ProducerError) Error() string {
	return fmt.Sprintf("the producer on cluster %q has lost the transaction: %v", e.Cluster, e.Err)
}

// Unwrap gives kgo's error.
func (e *ProducerError) Unwrap() error { return e.Err }

// UnknownOutcomeError says that this client does not know the outcome. It is
// no sign of an abort.
type UnknownOutcomeError struct {
	// Asked: a request may have reached the coordinator, so only it can end
	// the transaction. Otherwise nothing that could decide it has left this
	// client, and the transaction is open; unless another call of Commit is
	// under way, as Err says then, which may ask.
	Asked bool
	// Final: asking again gives the same answer: the coordinator remembers
	// the transaction no more. The data shows what became of it. Otherwise
	// call Commit again, or Abort, and be told the outcome that won. A client
	// that gives up closes: the next Open waits for what was decided and
	// aborts what was not.
	Final bool
	Err   error
}

func (e *UnknownOutcomeError) Error() string {
	switch {
	case !e.Asked:
		return fmt.Sprintf("client: the transaction is still open, commit was not asked for: %v", e.Err)
	case e.Final:
		return fmt.Sprintf("client: the outcome of the transaction is no longer remembered: %v", e.Err)
	}
	return fmt.Sprintf("client: the outcome of the transaction is not known, ask again: %v", e.Err)
}

// Unwrap gives the last error.
func (e *UnknownOutcomeError) Unwrap() error { return e.Err }

// FencedError says that another client has taken the global transactional id
// over, or that the coordinator ended the session because of its timeout. If
// commit was asked for before, its outcome is not known to this client. Close
// it; Open takes the id back.
type FencedError struct{ Err error }

func (e *FencedError) Error() string {
	return fmt.Sprintf("client: fenced, close this client and open another: %v", e.Err)
}

// Unwrap gives the coordinator's error.
func (e *FencedError) Unwrap() error { return e.Err }

// HeuristicError says that a cluster ended, or may have ended, against the
// decision. The clusters differ until a person mends the data.
type HeuristicError struct {
	Result Result
	// Err is set instead when it is an earlier transaction of the id, perhaps
	// of another client's: the id stands still until an operator has told the
	// coordinator to forget it.
	Err error
}

// Unwrap gives the coordinator's error.
func (e *HeuristicError) Unwrap() error { return e.Err }

func (e *HeuristicError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("client: the id stands still: %v", e.Err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "client: heuristic outcome, %v was decided", e.Result.Outcome)
	for _, p := range e.Result.Participants {
		if p.State.Heuristic() {
			fmt.Fprintf(&b, "; cluster %q: %v", p.Cluster, p.State)
			if p.Message != "" {
				fmt.Fprintf(&b, " (%s)", p.Message)
			}
		}
	}
	return b.String()
}

// PendingError says that the transaction is decided, and that these clusters
// have not ended it yet, or, from WaitVisible, do not show it. From Begin it is
// about the transaction before.
type PendingError struct {
	Outcome  Outcome
	Clusters []string
	Err      error
}

func (e *PendingError) Error() string {
	return fmt.Sprintf("client: the transaction is %v, waiting for %s: %v",
		e.Outcome, strings.Join(e.Clusters, ", "), e.Err)
}

// Unwrap gives what ended the wait, such as a *FencedError when the coordinator
// tells this client no more.
func (e *PendingError) Unwrap() error { return e.Err }

// NotEnabledError says that a cluster does not allow transactions without
// timeout.
type NotEnabledError struct {
	Cluster string
	// Setting is what to set on the cluster's brokers.
	Setting string
	Err     error
}

func (e *NotEnabledError) Error() string {
	return fmt.Sprintf("client: cluster %q does not allow transactions without timeout: set %s on its brokers: %v",
		e.Cluster, e.Setting, e.Err)
}

// Unwrap gives the cluster's or the coordinator's error.
func (e *NotEnabledError) Unwrap() error { return e.Err }

// ClusterIDMismatchError says that an address belongs to another cluster than
// expected.
type ClusterIDMismatchError struct {
	Cluster string
	// Want is the id expected, Got what the cluster answered; Got is empty
	// when it was the coordinator who found the difference.
	Want, Got string
	Err       error
}

func (e *ClusterIDMismatchError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("client: cluster %q (id %s): %v", e.Cluster, e.Want, e.Err)
	}
	return fmt.Sprintf("client: cluster %q has the id %q, not %q: correct its seed brokers or Cluster.ID", e.Cluster, e.Got, e.Want)
}

// Unwrap gives the coordinator's error, if it was the coordinator's.
func (e *ClusterIDMismatchError) Unwrap() error { return e.Err }

// ParticipantError says why a cluster cannot take part.
type ParticipantError struct {
	Cluster string
	Err     error
}

func (e *ParticipantError) Error() string {
	return fmt.Sprintf("client: cluster %q: %v", e.Cluster, e.Err)
}

// Unwrap gives the reason.
func (e *ParticipantError) Unwrap() error { return e.Err }

// UnknownClusterError says that a name is not among Options.Clusters.
type UnknownClusterError struct{ Cluster string }

func (e *UnknownClusterError) Error() string {
	return fmt.Sprintf("client: no cluster %q in Options.Clusters", e.Cluster)
}

// NoCoordinatorError says that none of the nodes in Options.Coordinator serves
// global transactions.
type NoCoordinatorError struct{ Addresses []string }

func (e *NoCoordinatorError) Error() string {
	return fmt.Sprintf("client: no node of %s serves global transactions: name one whose process.roles has gtc",
		strings.Join(e.Addresses, ", "))
}

// isClosed reports that a kgo client was closed under a request.
func isClosed(err error) bool { return errors.Is(err, kgo.ErrClientClosed) }
