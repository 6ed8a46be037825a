package gtc

import (
	"slices"

	"github.com/kafka-gtc/kafka-gtc/txnlog"
)

// sweepEvery is the pause between two looks for expired ids.
func (m *Machine) sweepEvery() int64 { return max(min(m.cfg.ExpirationMillis/10, 600_000), 1) }

// sweep forgets ids that nobody has used for the expiration time. One that is
// undecided, pending, heuristic or seen open stays, and none goes while a
// configured cluster could not be asked for some scans: a transaction may be
// open there that only this record can end.
func (s *step) sweep() {
	s.out.Changes = append(s.out.Changes, setSweep{at: s.now.Mono + s.m.sweepEvery()})
	var ids []string
	for id, e := range s.m.entries {
		if s.m.expired(e, s.now) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	for _, id := range ids {
		s.out.Changes = append(s.out.Changes, Persist{Record: txnlog.Record{GlobalTransactionalID: id}, Lazy: true})
	}
}

// steadyWall is the wall clock at the start plus elapsed time. Records are stamped
// with it as well: stamped by a clock that has gained a second since, a record of
// a coordinator that runs for longer than the expiration time would count as one
// from the future, and its id as idle since the start. (Found by the simulator.)
func (m *Machine) steadyWall(now Time) int64 { return m.started.Wall + now.Mono - m.started.Mono }

func (m *Machine) expired(e *entry, now Time) bool {
	v := e.value
	if v == nil || !e.atRest() {
		return false
	}
	// A record stamped in the future (by a clock that was wrong once) counts
	// as stamped at the start, or it would live until the clock gets there.
	wall := m.steadyWall(now)
	updated := v.UpdatedMillis
	if updated > wall {
		updated = m.started.Wall
	}
	if wall-updated < m.cfg.ExpirationMillis {
		return false
	}
	for _, id := range v.ClusterIDs {
		if !m.lookedAt(id, now) {
			return false
		}
	}
	return m.lookedAtAll(now)
}

// lookedAt: the last complete look at the cluster is recent.
func (m *Machine) lookedAt(clusterID string, now Time) bool {
	at, ok := m.scanned[clusterID]
	return ok && now.Mono-at <= 3*m.cfg.ScanIntervalMillis
}

// lookedAtAll: so it is of as many clusters as are configured. The clusters of
// the session are not enough: an earlier session may have left something open on
// one that was away when a later one, which does not name it, began; nobody
// could end it any more once the id is forgotten.
func (m *Machine) lookedAtAll(now Time) bool {
	n := 0
	for id := range m.scanned {
		if m.lookedAt(id, now) {
			n++
		}
	}
	return n >= m.cfg.Clusters
}
