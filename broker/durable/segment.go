package durable

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Offsets of fields inside a record batch (Kafka's message format v2).
const (
	batchLengthEnd = 12 // base offset and length, which the length does not count
	batchMagicAt   = 16
	batchCRCAt     = 17
	batchCRCFrom   = 21
	batchHeader    = 61
	maxBatchLength = 1 << 30

	attrTransactional = 1 << 4
	attrControl       = 1 << 5

	indexEntry = 15
)

// batch is what matters here of one record batch.
type batch struct {
	first, last   int64 // offsets
	size          int
	leaderEpoch   int32
	firstSequence int32
	maxTimestamp  int64
	producerID    int64
	producerEpoch int16
	transactional bool
	control       bool
	commit        bool // of a control batch: COMMIT, otherwise ABORT
}

// segment is one .dat file with its .idx, and what both must be.
type segment struct {
	base               int64
	path, indexPath    string
	size               int64 // of whole batches
	torn               int64 // bytes behind them
	batches            int
	index              []byte // the whole .idx file as it must be
	appended           []byte // control batches to be added
	created            bool   // there is no such file yet
	indexStale         bool
	minEpoch, maxEpoch int32
	modTime            time.Time
}

// scanSegment reads a segment and calls each for every batch. Only the last
// segment of a partition may end in an unfinished write. next is the lowest
// offset that the first batch may have.
func scanSegment(path, indexPath string, base, next int64, last bool, each func(batch)) (segment, error) {
	s := segment{base: base, path: path, indexPath: indexPath}
	info, err := os.Stat(path)
	if err != nil {
		return s, fmt.Errorf("durable: %w", err)
	}
	s.modTime = info.ModTime()
	raw, err := os.ReadFile(path)
	if err != nil {
		return s, fmt.Errorf("durable: %w", err)
	}
	maxTimestamp := int64(0)
	for int(s.size) < len(raw) {
		b, err := parseBatch(raw[s.size:])
		if err != nil {
			if err = tornOnly(path, raw, int(s.size), next, last, err); err != nil {
				return s, err
			}
			s.torn = int64(len(raw)) - s.size
			break
		}
		// The checksum matches and does not cover this: no unfinished write.
		if magic := raw[s.size+batchMagicAt]; magic != 2 {
			return s, fmt.Errorf("%w: %s: the batch at byte %d has magic %d, and 2 is the only one; restore the partition from a copy",
				ErrDamaged, path, s.size, magic)
		}
		if b.first < next || s.batches == 0 && b.first != base {
			return s, fmt.Errorf("%w: %s: the batch at byte %d has offset %d, but %d comes next; restore the partition from a copy",
				ErrDamaged, path, s.size, b.first, next)
		}
		if s.batches == 0 {
			s.minEpoch, s.maxEpoch, maxTimestamp = b.leaderEpoch, b.leaderEpoch, b.maxTimestamp
		}
		s.minEpoch, s.maxEpoch = min(s.minEpoch, b.leaderEpoch), max(s.maxEpoch, b.leaderEpoch)
		maxTimestamp = max(maxTimestamp, b.maxTimestamp)
		s.index = appendIndex(s.index, b, maxTimestamp)
		s.batches++
		s.size += int64(b.size)
		next = b.last + 1
		each(b)
	}
	return s, s.checkIndex(last)
}

// tornOnly tells an unfinished last write from damage. SyncWrites forces each
// batch before the next one is written, so at most one batch can be
// unfinished: a whole one behind it means that acknowledged data is broken,
// and cutting there would lose it silently.
func tornOnly(path string, raw []byte, at int, next int64, last bool, cause error) error {
	if !last {
		return fmt.Errorf("%w: %s: byte %d: %w, and this is not the last segment; restore the partition from a copy",
			ErrDamaged, path, at, cause)
	}
	for p := at + 1; p+batchHeader <= len(raw); p++ {
		if raw[p+batchMagicAt] != 2 || int64(binary.BigEndian.Uint64(raw[p:])) < next {
			continue
		}
		if _, err := parseBatch(raw[p:]); err == nil {
			return fmt.Errorf("%w: %s: byte %d: %w, but a whole batch follows at byte %d; restore the partition from a copy",
				ErrDamaged, path, at, cause, p)
		}
	}
	return nil
}

// parseBatch reads the batch at the front of raw.
func parseBatch(raw []byte) (batch, error) {
	if len(raw) < batchHeader {
		return batch{}, fmt.Errorf("%d bytes are no batch", len(raw))
	}
	length := int64(binary.BigEndian.Uint32(raw[8:]))
	size := length + batchLengthEnd
	if size < batchHeader || length > maxBatchLength || size > int64(len(raw)) {
		return batch{}, fmt.Errorf("a batch of %d bytes, %d are there", size, len(raw))
	}
	raw = raw[:size]
	if crc32.Checksum(raw[batchCRCFrom:], castagnoli) != binary.BigEndian.Uint32(raw[batchCRCAt:]) {
		return batch{}, errors.New("the checksum of the batch does not match")
	}
	var rb kmsg.RecordBatch
	if err := rb.ReadFrom(raw); err != nil {
		return batch{}, fmt.Errorf("reading the batch: %w", err)
	}
	b := batch{
		first:         rb.FirstOffset,
		last:          rb.FirstOffset + int64(rb.LastOffsetDelta),
		size:          int(size),
		leaderEpoch:   rb.PartitionLeaderEpoch,
		firstSequence: rb.FirstSequence,
		maxTimestamp:  rb.MaxTimestamp,
		producerID:    rb.ProducerID,
		producerEpoch: rb.ProducerEpoch,
		transactional: rb.Attributes&attrTransactional != 0,
		control:       rb.Attributes&attrControl != 0,
	}
	if !b.control {
		return b, nil
	}
	var (
		record kmsg.Record
		key    kmsg.ControlRecordKey
	)
	if err := errors.Join(record.ReadFrom(rb.Records), key.ReadFrom(record.Key)); err != nil {
		return batch{}, fmt.Errorf("reading the control record: %w", err)
	}
	b.commit = key.Type == kmsg.ControlRecordKeyTypeCommit
	if !b.commit && key.Type != kmsg.ControlRecordKeyTypeAbort {
		return batch{}, fmt.Errorf("a control record of type %d", key.Type)
	}
	return b, nil
}

// appendIndex adds the .idx entry of a batch: version, low byte of the
// checksum of the rest, leader epoch, running maximum of the timestamps, and
// whether it is a record of a transaction.
func appendIndex(index []byte, b batch, maxTimestamp int64) []byte {
	var e [indexEntry]byte
	e[0] = persistVersion
	binary.LittleEndian.PutUint32(e[2:], uint32(b.leaderEpoch))
	binary.LittleEndian.PutUint64(e[6:], uint64(maxTimestamp))
	if b.transactional && !b.control {
		e[14] = 1
	}
	e[1] = byte(crc32.Checksum(e[2:], castagnoli))
	return append(index, e[:]...)
}

// checkIndex compares the .idx file with the batches. An entry may be missing
// or left over by one, because it is written after its batch and forced after
// it too. kfake does not notice a missing one and lets the next batch take its
// place, so that from there on every entry describes the wrong batch.
func (s *segment) checkIndex(last bool) error {
	raw, err := os.ReadFile(s.indexPath)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("durable: %w", err)
	}
	s.indexStale = len(raw) != len(s.index)
	acknowledged := 0
	for at := 0; at+indexEntry <= len(raw); at += indexEntry {
		have := raw[at : at+indexEntry]
		if byte(crc32.Checksum(have[2:], castagnoli)) != have[1] {
			s.indexStale = true
			continue
		}
		if have[0] != persistVersion {
			return fmt.Errorf("%w: %s: the entry at byte %d has version %d, this broker knows version %d",
				ErrLayout, s.indexPath, at, have[0], persistVersion)
		}
		acknowledged = at/indexEntry + 1
		if at >= len(s.index) {
			continue
		}
		// The timestamp is not compared: kfake computes it anew when it
		// loads, and it is out of date after the log was trimmed. Nor is
		// a transactional batch without its flag an error: kfake's
		// compaction drops it. The flag on any other batch is one.
		want := s.index[at : at+indexEntry]
		if [4]byte(have[2:6]) != [4]byte(want[2:6]) || have[14] > want[14] {
			s.indexStale = true
		}
	}
	allowed := s.batches
	if last {
		allowed++ // the batch that was being written
	}
	if acknowledged > allowed {
		return fmt.Errorf("%w: %s ends at byte %d with %d batches, but %d were acknowledged; restore the partition from a copy, or remove %s to go on without them",
			ErrDamaged, s.path, s.size, s.batches, acknowledged, s.indexPath)
	}
	return nil
}

// flush makes both files what they must be.
func (s *segment) flush() (changed bool, err error) {
	if s.created {
		// The directory is not there when its topic was being deleted.
		if err := errors.Join(os.MkdirAll(filepath.Dir(s.path), 0o755), writeFile(s.path, nil)); err != nil {
			return false, err
		}
	}
	if s.torn > 0 {
		if err := truncateFile(s.path, s.size-int64(len(s.appended))); err != nil {
			return false, err
		}
	}
	if len(s.appended) > 0 {
		if err := appendFile(s.path, s.appended); err != nil {
			return false, err
		}
	}
	if s.torn == 0 && len(s.appended) == 0 && !s.indexStale {
		return false, nil
	}
	return true, writeFile(s.indexPath, s.index)
}

// markerBatch is the control batch that ends a transaction on one partition,
// as the coordinator writes it: one record whose key says COMMIT or ABORT.
func markerBatch(offset int64, leaderEpoch int32, pid int64, epoch int16, commit bool, at time.Time) []byte {
	key := kmsg.ControlRecordKey{Type: kmsg.ControlRecordKeyTypeAbort}
	if commit {
		key.Type = kmsg.ControlRecordKeyTypeCommit
	}
	marker := kmsg.EndTxnMarker{}
	record := kmsg.Record{Key: key.AppendTo(nil), Value: marker.AppendTo(nil)}
	record.Length = int32(len(record.AppendTo(nil)) - 1) // the length itself is one byte
	rb := kmsg.RecordBatch{
		FirstOffset:          offset,
		PartitionLeaderEpoch: leaderEpoch,
		Magic:                2,
		Attributes:           attrTransactional | attrControl,
		FirstTimestamp:       at.UnixMilli(),
		MaxTimestamp:         at.UnixMilli(),
		ProducerID:           pid,
		ProducerEpoch:        epoch,
		FirstSequence:        -1,
		NumRecords:           1,
		Records:              record.AppendTo(nil),
	}
	rb.Length = int32(len(rb.AppendTo(nil)) - batchLengthEnd)
	raw := rb.AppendTo(nil)
	binary.BigEndian.PutUint32(raw[batchCRCAt:], crc32.Checksum(raw[batchCRCFrom:], castagnoli))
	return raw
}
