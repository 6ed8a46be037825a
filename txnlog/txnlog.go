// Package txnlog defines what the coordinator remembers and where it is kept:
// the records of the internal topic __global_transaction_state and the Log
// that holds them.
//
// The package knows nobody above it. A record is the whole state of one global
// transactional id, so the last record of a key is the truth and compaction
// may drop every earlier one.
package txnlog

import (
	"context"
	"errors"
)

// Topic is the compacted internal topic that holds the coordinator's state.
const Topic = "__global_transaction_state"

// Record is one append: the new state of a global transactional id, or its
// removal when Value is nil (a tombstone).
type Record struct {
	GlobalTransactionalID string
	Value                 *GlobalTransaction
}

// Entry is one record as replay finds it.
type Entry struct {
	Record
	Offset int64
}

// Writer appends to the one partition that it has claimed. It is safe for one
// goroutine; done callbacks come from another, in the order of the appends.
type Writer interface {
	// Append queues records to be written, in order, as part of one batch:
	// either all of them become durable or none. While one batch is in
	// flight the next one fills, so many appends share one forced write.
	//
	// done is called exactly once: with nil when every in-sync replica (or
	// the disk, for the embedded store) has the records, with ErrFenced when
	// another owner has claimed the partition, and with any other error when
	// the fate of the records is unknown. After the first error the writer
	// is dead: every later Append fails with the same error, and the owner
	// must drop all state, claim again and read again. There is no retry
	// above this interface, because a retry under a new claim could write a
	// decision that the new owner has already settled otherwise.
	Append(records []Record, done func(error))

	// Close gives the partition up; appends in flight are waited for.
	Close(ctx context.Context) error
}

// Log is the partitioned store of coordinator state.
type Log interface {
	// Partitions is the number of partitions; PartitionFor maps an id to one.
	Partitions() int32

	// Claim makes the caller the only writer of the partition and then
	// reads everything that was written before the claim, in order, into
	// replay. When it returns, no earlier owner can append any more, and
	// whatever they appended has been replayed. A replay error ends the
	// claim with that error.
	Claim(ctx context.Context, partition int32, replay func(Entry) error) (Writer, error)

	Close()
}

var (
	// ErrFenced says that another owner has claimed the partition.
	ErrFenced = errors.New("txnlog: fenced by a newer claim of the partition")
	// ErrClosed says that the writer or the log was closed.
	ErrClosed = errors.New("txnlog: closed")
)
