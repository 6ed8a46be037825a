package durable

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// persistVersion is the one version of kfake's files that this package knows.
// Another one is refused: a guess about where a transaction stands is worse
// than a broker that does not start.
const persistVersion = 1

// The files of a kfake data directory, and our own journal beside them.
const (
	metaFile      = "meta.json"
	topicsFile    = "topics.json"
	pidsFile      = "pids.log"
	groupsFile    = "groups.log"
	windowsFile   = "seq_windows.json"
	sessionFile   = "session_state.json"
	snapshotFile  = "snapshot.json"
	partitionsDir = "partitions"
	journalFile   = "transactions.journal"
	tmpSuffix     = ".tmp"
	segmentSuffix = ".dat"
	indexSuffix   = ".idx"
)

// ErrLayout says that the directory is not laid out as the kfake this package
// was written for lays it out.
var ErrLayout = errors.New("durable: unknown data directory layout")

// ErrDamaged says that something other than an unfinished last write is
// missing from a file.
var ErrDamaged = errors.New("durable: data file is damaged")

type metaJSON struct {
	Version   int    `json:"version"`
	ClusterID string `json:"cluster_id"`
}

type topicsJSON struct {
	Version int         `json:"version"`
	Topics  []topicJSON `json:"topics"`
}

// topicJSON has its id in base64, which is also how the journal keeps ids.
type topicJSON struct {
	Name       string            `json:"name"`
	ID         string            `json:"id"`
	Partitions int               `json:"partitions"`
	Replicas   int               `json:"replicas"`
	Configs    map[string]string `json:"configs,omitempty"`
}

type snapshotJSON struct {
	Version          int           `json:"version"`
	HighWatermark    int64         `json:"high_watermark"`
	LastStableOffset int64         `json:"last_stable_offset"`
	LogStartOffset   int64         `json:"log_start_offset"`
	Epoch            int32         `json:"epoch"`
	LeaderNode       int32         `json:"leader_node,omitempty"`
	MaxTimestamp     int64         `json:"max_timestamp"`
	CreatedAt        time.Time     `json:"created_at"`
	AbortedTxns      []abortedJSON `json:"aborted_txns,omitempty"`
	Segments         []segmentJSON `json:"segments"`
}

// abortedJSON is one aborted transaction on one partition: from its first
// record to its control record.
type abortedJSON struct {
	ProducerID  int64 `json:"producer_id"`
	FirstOffset int64 `json:"first_offset"`
	LastOffset  int64 `json:"last_offset"`
}

type segmentJSON struct {
	BaseOffset int64 `json:"base_offset"`
	Size       int64 `json:"size"`
	MinEpoch   int32 `json:"min_epoch,omitempty"`
	MaxEpoch   int32 `json:"max_epoch,omitempty"`
}

type windowsJSON struct {
	Version int          `json:"version"`
	Windows []windowJSON `json:"windows"`
}

// windowJSON is the last five batches of one producer on one partition, a ring
// with At as the next place to write. Seq and Offsets are of an older kfake
// and always zero in what the present one writes.
type windowJSON struct {
	PID       int64        `json:"pid"`
	Topic     string       `json:"topic"`
	Partition int32        `json:"partition"`
	Entries   [5]batchJSON `json:"entries,omitempty"`
	Count     uint8        `json:"count,omitempty"`
	Seq       [5]int32     `json:"seq,omitempty"`
	Offsets   [5]int64     `json:"offsets,omitempty"`
	At        uint8        `json:"at"`
	Epoch     int16        `json:"epoch"`
	Seen      bool         `json:"seen,omitempty"`
	NextSeq   int32        `json:"next_seq,omitempty"`
}

type batchJSON struct {
	FirstSeq int32 `json:"first_seq"`
	NextSeq  int32 `json:"next_seq"`
	Offset   int64 `json:"offset"`
}

// pidJSON is one entry of pids.log. Commit is how the producer's last
// transaction ended; kfake leaves it out of the "init" entries that it appends
// while it runs and so forgets the outcome, see pids.go.
type pidJSON struct {
	Type    string `json:"type"`
	PID     int64  `json:"pid"`
	Epoch   int16  `json:"epoch"`
	TxID    string `json:"txid,omitempty"`
	Timeout int32  `json:"timeout,omitempty"`
	Commit  *bool  `json:"commit,omitempty"`
}

// groupJSON is one entry of groups.log.
type groupJSON struct {
	Type       string  `json:"type"`
	Group      string  `json:"g"`
	Topic      string  `json:"t,omitempty"`
	Partition  int32   `json:"p,omitempty"`
	Offset     int64   `json:"o,omitempty"`
	Epoch      int32   `json:"e,omitempty"`
	Metadata   *string `json:"m,omitempty"`
	LastCommit *int64  `json:"lc,omitempty"`
	GroupType  string  `json:"typ,omitempty"`
	ProtoType  string  `json:"pt,omitempty"`
	Protocol   string  `json:"pr,omitempty"`
	Generation int32   `json:"gen,omitempty"`
	Assignor   string  `json:"assignor,omitempty"`
	GroupEpoch int32   `json:"epoch848,omitempty"`
	InstanceID string  `json:"instance,omitempty"`
	MemberID   string  `json:"member,omitempty"`
}

// txnJSON is one open transaction in session_state.json.
type txnJSON struct {
	PID          int64                                    `json:"pid"`
	Start        time.Time                                `json:"txStart"`
	FirstOffsets map[string]map[int32]int64               `json:"txPartFirstOffsets"`
	Groups       []string                                 `json:"txGroups,omitempty"`
	Offsets      map[string]map[string]map[int32]offsetOf `json:"txOffsets,omitempty"`
}

// offsetOf is a staged group offset of one partition.
type offsetOf struct {
	Offset      int64   `json:"o"`
	LeaderEpoch int32   `json:"e,omitempty"`
	Metadata    *string `json:"m,omitempty"`
}

// decodeStrict refuses fields that it does not know: kfake adds a field when
// there is more to remember, and dropping it would forget that.
func decodeStrict(data []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one JSON value")
	}
	return nil
}

// readJSON reads a whole file of kfake; found is false when there is none.
func readJSON(path string, into any, version *int) (found bool, err error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("durable: %w", err)
	}
	if !json.Valid(data) {
		return false, fmt.Errorf("%w: %s is not whole JSON; restore it from a copy", ErrDamaged, path)
	}
	if err := decodeStrict(data, into); err != nil {
		return false, fmt.Errorf("%w: %s: %w", ErrLayout, path, err)
	}
	if version != nil && *version != persistVersion {
		return false, fmt.Errorf("%w: %s has version %d, this broker knows version %d; use the broker that wrote it",
			ErrLayout, path, *version, persistVersion)
	}
	return true, nil
}

// writeJSON puts v in the place of the file at path: all of it or, after a
// crash at any point, the old one.
func writeJSON(path string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("durable: encoding %s: %w", path, err)
	}
	return writeFile(path, data)
}

// writeFile replaces a file: temporary file, fsync, rename, fsync of the
// directory, without which the rename itself may be lost.
func writeFile(path string, data []byte) (err error) {
	tmp := path + tmpSuffix
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("durable: %w", err)
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		return fmt.Errorf("durable: writing %s: %w", tmp, err)
	}
	if err := os.Rename(tmp, path); err != nil {
		return fmt.Errorf("durable: %w", err)
	}
	return syncDir(filepath.Dir(path))
}

// appendFile adds bytes to the end of a file and forces them.
func appendFile(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("durable: %w", err)
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("durable: appending to %s: %w", path, err)
	}
	return nil
}

// truncateFile cuts a file and forces that.
func truncateFile(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("durable: %w", err)
	}
	if err := errors.Join(f.Truncate(size), f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("durable: truncating %s: %w", path, err)
	}
	return nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("durable: %w", err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("durable: syncing %s: %w", dir, err)
	}
	return nil
}
