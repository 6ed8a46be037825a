package txnlog

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
)

// ProducerEpochSealed is the epoch that ends a producer id for good: no batch
// with an epoch above it exists, and the broker refuses every one below it.
const ProducerEpochSealed int16 = math.MaxInt16

// RawRecord is one record as it lies in a partition, with the producer id and
// epoch of its batch. A nil Value is a tombstone.
type RawRecord struct {
	Offset        int64
	ProducerID    int64
	ProducerEpoch int16
	Key           []byte
	Value         []byte
}

// ForeignRecordError is a record that was written after a claim by somebody
// other than the claim's owner. It does not count. But compaction does not know
// that: while it is the newest of its key, it removes the one that counts. So an id
// whose newest record is foreign, or its tombstone, refuses the partition.
type ForeignRecordError struct {
	GlobalTransactionalID     string // empty when the record is about none
	Partition                 int32
	Offset                    int64
	ProducerID, OwnerID       int64
	ProducerEpoch, OwnerEpoch int16
	Claim                     bool // it says of itself that it is a claim
}

func (e *ForeignRecordError) Error() string {
	what := "record"
	if e.Claim {
		what = "claim"
	}
	if e.GlobalTransactionalID != "" {
		what += fmt.Sprintf(" about global transactional id %q", e.GlobalTransactionalID)
	}
	return fmt.Sprintf("txnlog: partition %d, offset %d: %s of producer %d epoch %d, but the partition belongs to producer %d epoch %d; "+
		"nobody but the coordinators may write to the topic: find out who does (kafka-acls.sh --list --topic %s) and take the right away",
		e.Partition, e.Offset, what, e.ProducerID, e.ProducerEpoch, e.OwnerID, e.OwnerEpoch, Topic)
}

// Replay turns the raw records of one partition, fed in the order of their
// offsets, into entries. It is pure: every store feeds it, so that all of them
// mean the same by a log.
//
// Whose records count. A claim makes the producer id and epoch of its batch
// the owner; from there on only records under that id and epoch count, every
// other is reported and left out. The broker enforces the same between two
// epochs of one producer id, but knows no order between two producer ids. A
// new producer id appears after 32,767 claims or when the transactional id has
// expired, and the owner under the old id is not fenced by a claim under the
// new one: it could go on, be told "durable" and act on decisions that no
// reader counts. Therefore a claim under another producer id takes effect only
// after the owner's id is sealed, which is a claim under that id with the
// epoch 32,767. Until then the owner's records count; from then on the broker
// refuses them. At no offset can an acknowledged record be left out.
//
// While there is no owner (at the beginning, after a seal) every record
// counts: compaction removes all claims but the last of a stretch.
//
// A record under a higher epoch of the owner's producer id is as good as its
// claim. Nobody writes under an epoch before the claim of it, so the claim was
// there: compaction has removed it between two reads of a replay, after the
// claim before it had been read. Left out, the decisions of that owner would be
// lost, and those after them that no later claim saves.
//
// In the same way compaction can remove the seal of a producer id whose claim was
// read before. Then all that the owners after it wrote is left out, and nothing in
// the log says so, except that another reading leaves out something else, because
// the claim that misled this one is gone as well: see LeftOut.
type Replay struct {
	Partition int32
	// Entry receives the records that count. Its error ends the replay.
	Entry func(Entry) error
	// Skipped is told of every record that is left out, with the reason: a
	// *ForeignRecordError or an *UnknownTypeError.
	Skipped func(error)

	owned      bool
	ownerID    int64
	ownerEpoch int16
	// doubts holds, for each key of a record, why the last one does not say what is
	// true. A later one of the same key that counts supersedes it.
	doubts  map[string]doubt
	shared  shared
	leftOut map[int64]struct{}
}

// doubt is an *UnknownVersionError, a *CorruptError, a *ForeignRecordError or a
// *LostError.
type doubt struct {
	offset int64
	err    error
}

// LeftOut tells the producer ids other than the owner's at the time whose records
// were left out. A second reading of the same records that leaves out those of
// other producer ids proves that compaction has misled one of the two.
func (r *Replay) LeftOut() map[int64]struct{} { return r.leftOut }

// Owner returns the producer id and epoch of the claim in effect.
func (r *Replay) Owner() (producerID int64, producerEpoch int16, ok bool) {
	return r.ownerID, r.ownerEpoch, r.owned
}

// Feed takes the next record. An error ends the replay.
func (r *Replay) Feed(rec RawRecord) error {
	key, err := DecodeKey(rec.Key)
	isClaim := err == nil && key.Type == TypeClaim
	if isClaim && rec.Value != nil && r.claim(rec) {
		return nil
	}
	if r.owned && rec.ProducerID == r.ownerID && rec.ProducerEpoch > r.ownerEpoch {
		r.ownerEpoch = rec.ProducerEpoch
	}
	switch {
	case r.owned && (rec.ProducerID != r.ownerID || rec.ProducerEpoch != r.ownerEpoch):
		if rec.ProducerID != r.ownerID {
			if r.leftOut == nil {
				r.leftOut = make(map[int64]struct{})
			}
			r.leftOut[rec.ProducerID] = struct{}{}
		}
		foreign := r.foreign(rec, isClaim)
		if err == nil && key.Type == TypeGlobalTransaction {
			foreign.GlobalTransactionalID = key.GlobalTransactionalID
			r.doubt(rec, foreign)
		}
		r.Skipped(foreign)
		return nil
	case isClaim: // a tombstone of a claim gives the partition to nobody
		return nil
	case err != nil:
		return r.badKey(rec, err)
	case key.Type == TypeLoss:
		return r.loss(rec)
	}
	return r.globalTransaction(rec, key.GlobalTransactionalID)
}

// claim applies the rule above and tells whether the claim takes effect. Its
// value is not needed for that: a claim of a newer version than ours fences
// all the same.
func (r *Replay) claim(rec RawRecord) bool {
	if rec.ProducerID < 0 { // nobody is fenced by that
		return false
	}
	if r.owned && (rec.ProducerID != r.ownerID || rec.ProducerEpoch < r.ownerEpoch) {
		return false
	}
	r.owned = rec.ProducerEpoch != ProducerEpochSealed
	r.ownerID, r.ownerEpoch = rec.ProducerID, rec.ProducerEpoch
	return true
}

func (r *Replay) foreign(rec RawRecord, claim bool) *ForeignRecordError {
	return &ForeignRecordError{
		Partition: r.Partition, Offset: rec.Offset,
		ProducerID: rec.ProducerID, ProducerEpoch: rec.ProducerEpoch,
		OwnerID: r.ownerID, OwnerEpoch: r.ownerEpoch,
		Claim: claim,
	}
}

func (r *Replay) badKey(rec RawRecord, err error) error {
	if unknown, ok := errors.AsType[*UnknownTypeError](err); ok {
		unknown.Partition, unknown.Offset = r.Partition, rec.Offset
		r.Skipped(unknown)
		return nil
	}
	return r.at(rec, "", err)
}

func (r *Replay) globalTransaction(rec RawRecord, id string) error {
	entry := Entry{Record: Record{GlobalTransactionalID: id}, Offset: rec.Offset}
	if rec.Value != nil {
		value, err := decodeValue(rec.Value, &r.shared)
		if err != nil {
			r.doubt(rec, r.at(rec, id, err))
			return nil
		}
		entry.Value = value
	}
	delete(r.doubts, string(rec.Key))
	return r.Entry(entry)
}

func (r *Replay) doubt(rec RawRecord, err error) {
	if r.doubts == nil {
		r.doubts = make(map[string]doubt)
	}
	r.doubts[string(rec.Key)] = doubt{rec.Offset, err}
}

// Lost tells of a stretch that cannot be read, in place of its records.
func (r *Replay) Lost(first, last int64, reason string) {
	r.doubt(RawRecord{Offset: first, Key: AppendLossKey(nil, first)},
		&LostError{Partition: r.Partition, First: first, Last: last, Reason: reason})
}

// loss takes an operator's word for a stretch; for another one than what cannot be
// read it does not count.
func (r *Replay) loss(rec RawRecord) error {
	if rec.Value == nil {
		return nil
	}
	l, err := DecodeLoss(rec.Value)
	if err != nil {
		return r.at(rec, "", err)
	}
	lost, ok := errors.AsType[*LostError](r.doubts[string(rec.Key)].err)
	if ok && lost.Last == l.LastOffset {
		delete(r.doubts, string(rec.Key))
	}
	return nil
}

// Doubts are the reasons to refuse the partition, by their offsets.
func (r *Replay) Doubts() []error {
	all := slices.SortedFunc(maps.Values(r.doubts), func(a, b doubt) int { return cmp.Compare(a.offset, b.offset) })
	var errs []error
	for _, d := range all {
		errs = append(errs, d.err)
	}
	return errs
}

// at puts the place into an error of the codec.
func (r *Replay) at(rec RawRecord, id string, err error) error {
	if corrupt, ok := errors.AsType[*CorruptError](err); ok {
		corrupt.GlobalTransactionalID, corrupt.Partition, corrupt.Offset = id, r.Partition, rec.Offset
	}
	if unknown, ok := errors.AsType[*UnknownVersionError](err); ok {
		unknown.GlobalTransactionalID, unknown.Partition, unknown.Offset = id, r.Partition, rec.Offset
	}
	return err
}

// Finish ends the replay. When the last record of an id does not say what is true of
// it, the partition is refused with the reason for the lowest offset.
func (r *Replay) Finish() error {
	doubts := r.Doubts()
	switch len(doubts) {
	case 0:
		return nil
	case 1:
		return doubts[0]
	}
	return fmt.Errorf("%w (and %d more ids like it in the partition)", doubts[0], len(doubts)-1)
}
