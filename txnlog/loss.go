package txnlog

import (
	"fmt"
	"time"
)

// Loss is an operator's word that the batches from the key's offset to LastOffset
// cannot be read, and that the partition goes on without them. Which ids they are
// about nobody knows; what they decided may be presumed aborted from then on.
type Loss struct {
	LastOffset      int64
	TimestampMillis int64
	Operator        string // who, for people
	Reason          string // what is wrong with the batches
	UnknownTags     map[uint32][]byte
}

// LostError is a stretch of a partition that cannot be read. It refuses the partition
// until an operator accepts it.
type LostError struct {
	Partition   int32
	First, Last int64
	Reason      string
}

func (e *LostError) Error() string {
	return fmt.Sprintf("txnlog: partition %d, offsets %d to %d cannot be read: %s; the ids in it are not known. Let a replica lead that is whole, "+
		"or see kafka-global-transactions log --help", e.Partition, e.First, e.Last, e.Reason)
}

// takenOutEpoch is the GlobalEpoch of an id that was taken out: above any that it had
// by counting, with as many above it.
const takenOutEpoch = 1 << 30

// TakenOut is the state that an operator gives to an id whose record cannot be read.
// The outcome of its last transaction is unknown, and like every heuristic outcome it
// stops the id until an operator forgets it: it must not look as if nothing had been
// decided. The place in the log stands where the audit of a participant would.
func TakenOut(doubt error, partition int32, offset int64, operator string, now time.Time) *GlobalTransaction {
	why := fmt.Sprintf("taken out of the log by %s at %s: %v", operator, now.UTC().Format(time.RFC3339), doubt)
	return &GlobalTransaction{
		State: StateCompleteAbort, GlobalEpoch: takenOutEpoch, Sequence: now.UnixMilli(), SessionEnded: true,
		Participants: []Participant{{
			ClusterID: "unknown", ProducerID: -1, ProducerEpoch: -1, State: ParticipantHeuristicUnknown,
			NextProducerID: -1, NextProducerEpoch: -1,
			AuditTopic: Topic, AuditPartition: partition, StartMillis: offset, Detail: why,
		}},
		Reason: why, DecidedMillis: now.UnixMilli(), UpdatedMillis: now.UnixMilli(),
	}
}
