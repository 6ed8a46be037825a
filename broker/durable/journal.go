package durable

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// rewriteAt is the size in bytes from which the journal is written anew with
// what is still open; it is never rewritten before it is four times as long.
const rewriteAt = 1 << 20

// maxKnown bounds the transactional ids that the journal knows the producer
// of. Past it, an InitProducerId that dies while it aborts what it found is
// not finished by Repair but by its repeat.
const maxKnown = 1 << 20

// Journal is the memory of transactions that kfake does not have: see the
// package comment. Its methods may be called from any goroutine.
type Journal struct {
	path string
	now  func() time.Time

	mu      sync.Mutex // everything but the fsync
	file    *os.File
	size    int64
	limit   int64 // rewrite at this size
	open    stagedTxns
	known   map[string]producerAt // by transactional id
	failed  error
	written int64 // number of entries in the file

	syncing sync.Mutex // one fsync at a time, for all that wait for it
	synced  int64
}

type producerAt struct {
	id    int64
	epoch int16
}

// OpenJournal opens the journal of a data directory, after Repair and before
// kfake is started on the directory. It holds then what the open transactions
// have staged, and nothing else.
func OpenJournal(dir string, now func() time.Time) (*Journal, error) {
	s, err := readSession(filepath.Join(dir, sessionFile))
	if err != nil {
		return nil, err
	}
	pids, _, err := readPids(filepath.Join(dir, pidsFile))
	if err != nil {
		return nil, err
	}
	j := &Journal{path: filepath.Join(dir, journalFile), now: now, open: make(stagedTxns), known: make(map[string]producerAt)}
	for _, p := range pids {
		if p.txid != "" && !p.superseded {
			j.known[p.txid] = producerAt{p.id, p.epoch}
		}
		if t, ok := s.txns[p.id]; ok && len(t.Groups) > 0 {
			j.open[p.id] = &stagedTxn{epoch: p.epoch, began: t.Start, groups: t.Groups, offsets: t.Offsets}
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("durable: %w", err)
	}
	if err := j.rewrite(); err != nil {
		return nil, err
	}
	return j, nil
}

// Close closes the file. What it holds stays.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.failed == nil {
		j.failed = errors.New("durable: the journal is closed")
	}
	return j.file.Close()
}

// Request is called before kfake sees the request. It notes which end is asked
// for, so that an end which dies half way can be finished the same way.
func (j *Journal) Request(req kmsg.Request) error {
	switch r := req.(type) {
	case *kmsg.EndTxnRequest:
		at := producerAt{r.ProducerID, r.ProducerEpoch}
		return j.ending(at, r.Version, r.Commit)
	case *kmsg.AddPartitionsToTxnRequest:
		return j.begins(producerAt{r.ProducerID, r.ProducerEpoch})
	case *kmsg.InitProducerIDRequest:
		if r.TransactionalID == nil {
			return nil
		}
		j.mu.Lock()
		at, ok := j.known[*r.TransactionalID]
		j.mu.Unlock()
		if ok {
			return j.ending(at, initAsEndTxn, false)
		}
	}
	return nil
}

// ending notes an end, and forces that: kfake forces each control record before
// the next, and when the power fails between two of them, the note alone says
// that the end was asked for, which one, and in which version.
func (j *Journal) ending(at producerAt, version int16, commit bool) error {
	j.mu.Lock()
	if t := j.open[at.id]; t != nil && len(t.groups) > 0 && t.epoch != at.epoch {
		j.mu.Unlock()
		return nil
	}
	return j.appendAndUnlock(true, journalEntry{Kind: kindEnding, PID: at.id, Epoch: at.epoch, Version: version, Commit: commit})
}

// begins notes that the transaction before has ended, when its end had no
// answer that we know of: the client goes on. Beside that note alone, the
// transaction that begins would be taken for the one that was being ended.
func (j *Journal) begins(at producerAt) error {
	j.mu.Lock()
	if t := j.open[at.id]; t == nil || t.epoch != at.epoch || t.ending == nil {
		j.mu.Unlock()
		return nil
	}
	return j.appendAndUnlock(true, journalEntry{Kind: kindEnded, PID: at.id, Epoch: at.epoch})
}

// Response is called with kfake's answer before the client sees it; nil when
// kfake's connection broke without one.
func (j *Journal) Response(req kmsg.Request, resp kmsg.Response) error {
	if resp == nil {
		return nil
	}
	switch r := req.(type) {
	case *kmsg.AddOffsetsToTxnRequest:
		if resp.(*kmsg.AddOffsetsToTxnResponse).ErrorCode == 0 {
			return j.staged(journalEntry{Kind: kindStage, PID: r.ProducerID, Epoch: r.ProducerEpoch, Group: r.Group})
		}
	case *kmsg.TxnOffsetCommitRequest:
		if e, ok := stageEntry(r, resp.(*kmsg.TxnOffsetCommitResponse)); ok {
			return j.staged(e)
		}
	case *kmsg.EndTxnRequest:
		a := resp.(*kmsg.EndTxnResponse)
		next := producerAt{a.ProducerID, a.ProducerEpoch}
		return j.answered(producerAt{r.ProducerID, r.ProducerEpoch}, r.TransactionalID, next, a.ErrorCode)
	case *kmsg.InitProducerIDRequest:
		if r.TransactionalID == nil {
			return nil
		}
		a := resp.(*kmsg.InitProducerIDResponse)
		j.mu.Lock()
		at, ok := j.known[*r.TransactionalID]
		j.mu.Unlock()
		if !ok {
			at = producerAt{-1, -1}
		}
		return j.answered(at, *r.TransactionalID, producerAt{a.ProducerID, a.ProducerEpoch}, a.ErrorCode)
	}
	return nil
}

func (j *Journal) staged(e journalEntry) error {
	j.mu.Lock()
	return j.appendAndUnlock(true, e)
}

// answered notes how an end went, for the transaction that it was about.
func (j *Journal) answered(at producerAt, txid string, next producerAt, code int16) error {
	j.mu.Lock()
	if _, ok := j.known[txid]; code == 0 && next.id >= 0 && (ok || len(j.known) < maxKnown) {
		j.known[txid] = next
	}
	t := j.open[at.id]
	if t == nil || t.epoch != at.epoch {
		j.mu.Unlock()
		return nil
	}
	if code != 0 {
		return j.appendAndUnlock(len(t.groups) > 0, journalEntry{Kind: kindVoid, PID: at.id, Epoch: at.epoch})
	}
	// Where the epoch goes on, the next transaction would be taken for this one
	// if it were found beside a note that this one is being ended.
	goesOn := t.ending != nil && !bumps(t.ending.Version)
	return j.appendAndUnlock(goesOn, journalEntry{Kind: kindEnded, PID: at.id, Epoch: at.epoch})
}

// stageEntry gives what a TxnOffsetCommit has staged: the partitions that were
// answered without an error.
func stageEntry(req *kmsg.TxnOffsetCommitRequest, resp *kmsg.TxnOffsetCommitResponse) (journalEntry, bool) {
	type at struct {
		topic     string
		id        [16]byte
		partition int32
	}
	accepted := make(map[at]bool)
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			accepted[at{t.Topic, t.TopicID, p.Partition}] = p.ErrorCode == 0
		}
	}
	byID := req.Version >= 6
	e := journalEntry{Kind: kindStage, PID: req.ProducerID, Epoch: req.ProducerEpoch, Group: req.Group}
	for _, t := range req.Topics {
		key := at{topic: t.Topic}
		o := stagedOffset{Topic: t.Topic}
		if byID {
			key = at{id: t.TopicID}
			o = stagedOffset{TopicID: base64.StdEncoding.EncodeToString(t.TopicID[:])}
		}
		for _, p := range t.Partitions {
			if key.partition = p.Partition; !accepted[key] {
				continue
			}
			o.Partition, o.Offset, o.LeaderEpoch, o.Metadata = p.Partition, p.Offset, p.LeaderEpoch, p.Metadata
			e.Offsets = append(e.Offsets, o)
		}
	}
	return e, len(e.Offsets) > 0
}

// appendAndUnlock writes an entry, with j.mu held, and gives the lock back. A
// forced write returns when an fsync that began after it has succeeded; those
// who wait share it.
func (j *Journal) appendAndUnlock(force bool, e journalEntry) error {
	err := j.appendLocked(e)
	file, mine := j.file, j.written
	j.mu.Unlock()
	if err != nil || !force {
		return err
	}
	j.syncing.Lock()
	defer j.syncing.Unlock()
	if j.synced >= mine {
		return nil
	}
	j.mu.Lock()
	all := j.written
	current := j.file
	j.mu.Unlock()
	if current != file {
		return nil // written anew since, and forced with it
	}
	if err := file.Sync(); err != nil {
		return j.fail(file, err)
	}
	j.synced = all
	return nil
}

func (j *Journal) appendLocked(e journalEntry) error {
	if j.failed != nil {
		return j.failed
	}
	e.AtMillis = j.now().UnixMilli()
	frame, err := appendFrame(nil, e)
	if err != nil {
		return err
	}
	if _, err := j.file.Write(frame); err != nil {
		j.failed = fmt.Errorf("durable: the journal cannot be written: %w", err)
		return j.failed
	}
	j.written++
	j.size += int64(len(frame))
	j.open.apply(e, keepTopicID)
	if j.size >= j.limit {
		if err := j.rewrite(); err != nil {
			j.failed = err
			return err
		}
	}
	return nil
}

// fail stops the journal for good: what an fsync has failed to write may be
// gone from the page cache, so the next fsync would succeed without it.
func (j *Journal) fail(file *os.File, err error) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.failed != nil || j.file != file {
		return j.failed // closed, or written anew and forced meanwhile
	}
	j.failed = fmt.Errorf("durable: the journal cannot be forced to disk: %w", err)
	return j.failed
}

// rewrite replaces the file by one that holds what is open.
func (j *Journal) rewrite() error {
	var raw []byte
	for _, pid := range slices.Sorted(maps.Keys(j.open)) {
		for _, e := range j.open[pid].entries(pid) {
			var err error
			if raw, err = appendFrame(raw, e); err != nil {
				return err
			}
		}
	}
	if err := writeFile(j.path, raw); err != nil {
		return err
	}
	file, err := os.OpenFile(j.path, os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("durable: %w", err)
	}
	if j.file != nil {
		_ = j.file.Close() // the old one, already renamed over
	}
	j.file, j.size = file, int64(len(raw))
	j.limit = max(rewriteAt, 4*j.size)
	return nil
}
