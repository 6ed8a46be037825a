package durable

import (
	"math"
	"slices"
	"strings"
	"time"
)

// The kinds of journal entries.
const (
	kindStage  = "stage"  // a group, and offsets of it, became part of the transaction
	kindEnding = "ending" // an end was asked for; kfake has not answered
	kindEnded  = "ended"  // kfake has ended it
	kindVoid   = "void"   // kfake has refused to
)

// journalEntry is one entry of the journal. Which transaction it is about is
// (producer id, epoch); below EndTxn version 5 an epoch has many transactions,
// one after the other, and "ended" separates them.
type journalEntry struct {
	Kind     string         `json:"k"`
	PID      int64          `json:"pid"`
	Epoch    int16          `json:"epoch"`
	AtMillis int64          `json:"at"` // wall clock
	Version  int16          `json:"v,omitempty"`
	Commit   bool           `json:"commit,omitempty"`
	Group    string         `json:"g,omitempty"`
	Offsets  []stagedOffset `json:"o,omitempty"`
}

// stagedOffset is one partition of a TxnOffsetCommit. From version 6 on the
// topic comes as an id (base64 here).
type stagedOffset struct {
	Topic       string  `json:"t,omitempty"`
	TopicID     string  `json:"tid,omitempty"`
	Partition   int32   `json:"p"`
	Offset      int64   `json:"o"`
	LeaderEpoch int32   `json:"e"`
	Metadata    *string `json:"m,omitempty"`
}

// stagedTxn is what the journal knows of one transaction.
type stagedTxn struct {
	epoch   int16
	began   time.Time
	groups  []string // in the order in which they came
	offsets map[string]map[string]map[int32]offsetOf
	ending  *journalEntry
}

// stagedTxns are the transactions of the journal by producer id: one each.
type stagedTxns map[int64]*stagedTxn

// apply folds one entry in. It is the only writer, live and on replay. topicOf
// finds the name of a topic id, "" when there is none.
func (ts stagedTxns) apply(e journalEntry, topicOf func(id string) string) {
	t := ts[e.PID]
	switch e.Kind {
	case kindStage:
		// After an end was asked for and neither done nor refused as far as
		// we heard, more offsets can only be those of the next transaction.
		if t == nil || t.epoch < e.Epoch || t.epoch == e.Epoch && t.ending != nil {
			t = &stagedTxn{epoch: e.Epoch, began: time.UnixMilli(e.AtMillis)}
			ts[e.PID] = t
		}
		if t.epoch == e.Epoch {
			t.stage(e, topicOf)
		}
	case kindEnding:
		// A request may name any epoch; only an answer proves one. So it
		// does not push out offsets staged under another.
		if t != nil && t.epoch != e.Epoch && len(t.groups) > 0 {
			return
		}
		if t == nil || t.epoch != e.Epoch {
			t = &stagedTxn{epoch: e.Epoch}
			ts[e.PID] = t
		}
		t.ending = &e
	case kindEnded:
		if t != nil && t.epoch <= e.Epoch {
			delete(ts, e.PID)
		}
	case kindVoid:
		if t != nil && t.epoch == e.Epoch {
			t.ending = nil
			if len(t.groups) == 0 {
				delete(ts, e.PID)
			}
		}
	}
}

func (t *stagedTxn) stage(e journalEntry, topicOf func(id string) string) {
	if !slices.Contains(t.groups, e.Group) {
		t.groups = append(t.groups, e.Group)
	}
	for _, o := range e.Offsets {
		topic := o.Topic
		if topic == "" {
			topic = topicOf(o.TopicID)
		}
		if topic == "" {
			continue // deleted since, and its offsets with it
		}
		if t.offsets == nil {
			t.offsets = make(map[string]map[string]map[int32]offsetOf)
		}
		if t.offsets[e.Group] == nil {
			t.offsets[e.Group] = make(map[string]map[int32]offsetOf)
		}
		put(t.offsets[e.Group], topic, o.Partition, offsetOf{o.Offset, o.LeaderEpoch, o.Metadata})
	}
}

// each calls do for every staged offset.
func (t *stagedTxn) each(do func(groupKey, offsetOf)) {
	for group, topics := range t.offsets {
		for topic, partitions := range topics {
			for partition, o := range partitions {
				do(commitKey(group, topic, partition), o)
			}
		}
	}
}

// bumps says whether an end by this version of EndTxn moves the epoch on
// (KIP-890).
func bumps(version int16) bool { return version >= 5 }

// initAsEndTxn is the version under which InitProducerId is noted: it ends what
// it finds and moves the epoch on, as an EndTxn(abort) of version 5 does.
const initAsEndTxn int16 = math.MaxInt16

// idPrefix marks a topic id where a topic name is expected. The live journal
// does not look names up; no topic name contains the character.
const idPrefix = "\x00"

func keepTopicID(id string) string { return idPrefix + id }

// entries are the entries that make t again.
func (t *stagedTxn) entries(pid int64) []journalEntry {
	var all []journalEntry
	for _, group := range t.groups {
		e := journalEntry{Kind: kindStage, PID: pid, Epoch: t.epoch, AtMillis: t.began.UnixMilli(), Group: group}
		for topic, partitions := range t.offsets[group] {
			for partition, o := range partitions {
				s := stagedOffset{Topic: topic, Partition: partition, Offset: o.Offset, LeaderEpoch: o.LeaderEpoch, Metadata: o.Metadata}
				if id, ok := strings.CutPrefix(topic, idPrefix); ok {
					s.Topic, s.TopicID = "", id
				}
				e.Offsets = append(e.Offsets, s)
			}
		}
		all = append(all, e)
	}
	if t.ending != nil {
		all = append(all, *t.ending)
	}
	return all
}
