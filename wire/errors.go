package wire

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
)

// Error is an error code of the coordinator that Kafka has no code for. The
// codes begin at 1000, clear of Kafka's own while the KIP is not numbered.
// Errors are compared by identity: errors.Is(err, wire.HeuristicOutcome).
type Error struct {
	// Name is the code in Kafka's style, such as HEURISTIC_OUTCOME.
	Name string
	// Code is the number on the wire.
	Code int16
	// Retriable says that the same request may succeed later with nothing
	// else changed.
	Retriable bool
	// Description says what happened and what to do about it.
	Description string
}

func (e *Error) Error() string { return e.Name + ": " + e.Description }

// The errors of the coordinator, named as package kerr names its own.
var (
	ParticipantNotAvailable = &Error{
		Name: "PARTICIPANT_NOT_AVAILABLE", Code: 1000, Retriable: true,
		Description: "The coordinator could not ask a participant cluster. Try again; " +
			"if it lasts, check the cluster and the coordinator's connection to it.",
	}
	UnknownParticipant = &Error{
		Name: "UNKNOWN_PARTICIPANT", Code: 1001,
		Description: "A cluster id is not configured at the coordinator, or does not belong to this session. " +
			"Add the cluster to gtc.clusters, or name it in InitGlobalTxn.",
	}
	ParticipantClusterIDMismatch = &Error{
		Name: "PARTICIPANT_CLUSTER_ID_MISMATCH", Code: 1002,
		Description: "The address configured for a participant answers with another cluster id. " +
			"Correct its bootstrap.servers at the coordinator.",
	}
	ParticipantNotEnabled = &Error{
		Name: "PARTICIPANT_NOT_ENABLED", Code: 1003,
		Description: "A participant cluster does not allow transactions without timeout. " +
			"Set transaction.two.phase.commit.enable=true or transaction.max.timeout.ms=2147483647 on its brokers.",
	}
	HeuristicOutcome = &Error{
		Name: "HEURISTIC_OUTCOME", Code: 1004,
		Description: "A participant ended, or may have ended, against the decision, so the clusters differ. " +
			"Describe the id, mend the data, then forget the outcome with ResolveGlobalTransaction.",
	}
	GlobalTransactionTooOld = &Error{
		Name: "GLOBAL_TRANSACTION_TOO_OLD", Code: 1005,
		Description: "This transaction was decided, and its outcome is no longer remembered; that does not mean aborted. " +
			"Look at the data to learn the outcome, and call InitGlobalTxn to go on.",
	}
	CorruptGlobalTransactionLog = &Error{
		Name: "CORRUPT_GLOBAL_TRANSACTION_LOG", Code: 1006,
		Description: "The coordinator cannot read a record of this id or of its partition, and decides nothing. " +
			"Look at the coordinator's log; run a version that knows the record, or mend the record.",
	}
)

var codes = []*Error{
	ParticipantNotAvailable,
	UnknownParticipant,
	ParticipantClusterIDMismatch,
	ParticipantNotEnabled,
	HeuristicOutcome,
	GlobalTransactionTooOld,
	CorruptGlobalTransactionLog,
}

// Errors lists the errors of this package by ascending code.
func Errors() []*Error { return append([]*Error(nil), codes...) }

// UnknownErrorCodeError is a code that neither this package nor kerr knows,
// sent by a newer peer. It is not retriable, because nothing is known of it.
type UnknownErrorCodeError struct{ Code int16 }

func (e *UnknownErrorCodeError) Error() string {
	return fmt.Sprintf("error code %d is not known to this version: use one as new as the coordinator", e.Code)
}

// ErrorForCode returns nil for 0, a *Error for a code of this package, kerr's
// error for a code of Kafka's, and a *UnknownErrorCodeError for any other.
func ErrorForCode(code int16) error {
	for _, e := range codes {
		if e.Code == code {
			return e
		}
	}
	err := kerr.ErrorForCode(code)
	// kerr answers every code that it does not know with UnknownServerError,
	// whose own code is -1: the number, all that there is to tell, is lost.
	if errors.Is(err, kerr.UnknownServerError) && code != kerr.UnknownServerError.Code {
		return &UnknownErrorCodeError{Code: code}
	}
	return err
}

// IsRetriable reports whether err is, or wraps, an error code of this package
// or of Kafka's after which the same request may succeed.
func IsRetriable(err error) bool {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Retriable
	}
	if e, ok := errors.AsType[*kerr.Error](err); ok {
		return e.Retriable
	}
	return false
}
