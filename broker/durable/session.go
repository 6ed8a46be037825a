package durable

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"reflect"
	"slices"
	"time"
)

const (
	// unlimited is the timeout of a transaction that nothing but EndTxn may
	// end (KIP-939, and transaction.max.timeout.ms at its highest).
	unlimited = math.MaxInt32
	// kfake counts even that one down, for 24.8 days. A restart turns the
	// clock back so far that half of them are left.
	unlimitedAge = unlimited * time.Millisecond / 2
)

const (
	sessionTxns     = "inProgressTxns"
	sessionShutdown = "shutdownAt"
)

// sessionKeys are the parts of session_state.json. We carry all but one of
// them as they are.
var sessionKeys = []string{
	sessionTxns, sessionShutdown,
	"classicGroups", "consumerGroups", "shareGroups", "groupConfigs", "clientMetrics", "fetchSessions",
}

// session is session_state.json: what a clean Close leaves for the next start,
// which removes it once it has loaded it.
type session struct {
	path  string
	found bool
	parts map[string]json.RawMessage
	txns  map[int64]txnJSON
}

func readSession(path string) (*session, error) {
	s := &session{path: path, parts: make(map[string]json.RawMessage), txns: make(map[int64]txnJSON)}
	raw, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return nil, fmt.Errorf("durable: %w", err)
	}
	s.found = true
	if err := decodeStrict(raw, &s.parts); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrLayout, path, err)
	}
	for key := range s.parts {
		if !slices.Contains(sessionKeys, key) {
			return nil, fmt.Errorf("%w: %s has a part %q", ErrLayout, path, key)
		}
	}
	var txns []txnJSON
	if part, ok := s.parts[sessionTxns]; ok {
		if err := decodeStrict(part, &txns); err != nil {
			return nil, fmt.Errorf("%w: %s: %s: %w", ErrLayout, path, sessionTxns, err)
		}
	}
	for _, t := range txns {
		s.txns[t.PID] = t
	}
	return s, nil
}

// flush writes the open transactions wanted into the session, unless they are
// what it has.
func (s *session) flush(want map[int64]txnJSON, now time.Time) (changed bool, err error) {
	if reflect.DeepEqual(s.txns, want) {
		return false, nil
	}
	list := make([]txnJSON, 0, len(want))
	for _, pid := range slices.Sorted(maps.Keys(want)) {
		list = append(list, want[pid])
	}
	if s.parts[sessionTxns], err = json.Marshal(list); err != nil {
		return false, fmt.Errorf("durable: %w", err)
	}
	if !s.found {
		if s.parts[sessionShutdown], err = json.Marshal(now); err != nil {
			return false, fmt.Errorf("durable: %w", err)
		}
	}
	return true, writeJSON(s.path, s.parts)
}

// openTxn is the session's entry for a producer whose transaction is open in
// the ranges live and has the group offsets of staged (which may be nil).
func (s *session) openTxn(p *producer, live []*openRange, staged *stagedTxn, now time.Time) txnJSON {
	old, found := s.txns[p.id]
	t := txnJSON{PID: p.id, Start: old.Start, Groups: slices.Clone(old.Groups), FirstOffsets: make(map[string]map[int32]int64)}
	began := func(at time.Time) {
		if !found && !at.IsZero() && (t.Start.IsZero() || at.Before(t.Start)) {
			t.Start = at
		}
	}
	for _, r := range live {
		put(t.FirstOffsets, r.partition.topic, r.partition.number, r.first)
		began(r.written)
	}
	for group, topics := range old.Offsets {
		t.stageGroup(group)
		for topic, partitions := range topics {
			t.Offsets[group][topic] = maps.Clone(partitions)
		}
	}
	if staged != nil {
		for _, group := range staged.groups {
			if !slices.Contains(t.Groups, group) {
				t.Groups = append(t.Groups, group)
			}
		}
		staged.each(t.stage)
		began(staged.began)
	}
	if t.Start.IsZero() || t.Start.After(now) {
		t.Start = now
	}
	if p.timeout == unlimited && now.Sub(t.Start) > unlimitedAge {
		t.Start = now.Add(-unlimitedAge)
	}
	return t
}

func (t *txnJSON) stageGroup(group string) {
	if t.Offsets == nil {
		t.Offsets = make(map[string]map[string]map[int32]offsetOf)
	}
	if t.Offsets[group] == nil {
		t.Offsets[group] = make(map[string]map[int32]offsetOf)
	}
}

func (t *txnJSON) stage(at groupKey, o offsetOf) {
	t.stageGroup(at.group)
	put(t.Offsets[at.group], at.topic, at.partition, o)
}

// put sets a value in a map of maps.
func put[K, L comparable, V any](m map[K]map[L]V, k K, l L, v V) {
	if m[k] == nil {
		m[k] = make(map[L]V)
	}
	m[k][l] = v
}
