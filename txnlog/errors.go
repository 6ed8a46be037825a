package txnlog

import (
	"errors"
	"fmt"
)

// ErrUnknownFate says that nobody can tell whether an append is in the log:
// every acknowledgement that could have told was lost. Only a new claim, which
// reads the log again, can.
var ErrUnknownFate = errors.New("txnlog: the fate of an append is unknown; claim the partition again to read what is there")

// UnknownTypeError is a record of a kind that this version does not know. It
// is skipped: a kind that older coordinators must not skip needs a new version
// of a kind they know.
type UnknownTypeError struct {
	Type      int16
	Partition int32
	Offset    int64
}

func (e *UnknownTypeError) Error() string {
	return fmt.Sprintf("txnlog: partition %d, offset %d: record type %d is unknown", e.Partition, e.Offset, e.Type)
}

// UnknownVersionError is a record in a version that this coordinator cannot
// read. While it is the last word about its id, the partition is refused: to
// go on without it would presume an abort where a commit may be decided.
type UnknownVersionError struct {
	GlobalTransactionalID string
	Partition             int32
	Offset                int64
	Version               int16
}

func (e *UnknownVersionError) Error() string {
	return fmt.Sprintf("txnlog: partition %d, offset %d: the state of global transactional id %q has version %d, and this coordinator reads version %d only; run the version that wrote it",
		e.Partition, e.Offset, e.GlobalTransactionalID, e.Version, valueVersion)
}

// CorruptError is a record or a batch that no writer can have written.
type CorruptError struct {
	GlobalTransactionalID string // empty when it cannot be told
	Partition             int32
	Offset                int64
	Reason                string
	Err                   error // the cause, when there is one
}

func (e *CorruptError) Error() string {
	what := fmt.Sprintf("txnlog: partition %d, offset %d is corrupt", e.Partition, e.Offset)
	if e.GlobalTransactionalID != "" {
		what = fmt.Sprintf("txnlog: partition %d, offset %d: the state of global transactional id %q is corrupt", e.Partition, e.Offset, e.GlobalTransactionalID)
	}
	return fmt.Sprintf("%s: %s; let a replica lead that is whole, or see kafka-global-transactions log --help", what, e.Reason)
}

func (e *CorruptError) Unwrap() error { return e.Err }

// Refuses says whether an error is about what lies in the partition, so that reading
// it again gives the same: nothing of the partition may be served, and an operator
// has to look.
func Refuses(err error) bool {
	return errors.As(err, new(*CorruptError)) || errors.As(err, new(*UnknownVersionError)) ||
		errors.As(err, new(*ForeignRecordError)) ||
		errors.As(err, new(*LostError))
}
