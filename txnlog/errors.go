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
	Partition int32
	Offset    int64
	Reason    string
	Err       error // the cause, when there is one
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("txnlog: partition %d, offset %d is corrupt: %s; restore it from a replica, or delete the record once every participant of its id has been checked by hand",
		e.Partition, e.Offset, e.Reason)
}

func (e *CorruptError) Unwrap() error { return e.Err }
