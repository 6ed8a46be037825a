package service

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/kafka-gtc/kafka-gtc/txnlog"
)

// Retention is for how long a participant keeps what has to outlast an outage, in
// milliseconds.
type Retention struct {
	IDExpirationMillis int64            // transactional.id.expiration.ms; -1 when not known
	TopicMillis        map[string]int64 // retention.ms of topics that transactions wrote to
}

// The values of the label setting.
const (
	settingIDExpiration = "transactional.id.expiration.ms"
	settingRetention    = "retention.ms"
)

// repeatWarning is the pause before a warning that is still true is repeated.
const repeatWarning = time.Hour

// retentions are what is known of the participants' retention, and what it has to
// be compared with.
type retentions struct {
	mu       sync.Mutex
	of       map[string]Retention // by cluster id
	timeouts map[string]int64     // the longest of a session that names the cluster
	warned   map[string]warning   // by cluster id and setting
}

type warning struct {
	text string
	mono int64
}

func newRetentions() *retentions {
	return &retentions{of: map[string]Retention{}, timeouts: map[string]int64{}, warned: map[string]warning{}}
}

// session notes the timeout of a session. The longest one counts for as long as
// this node runs.
func (r *retentions) session(v *txnlog.GlobalTransaction) {
	if v == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range v.ClusterIDs {
		if timeout := int64(v.TimeoutMillis); timeout > r.timeouts[id] {
			r.timeouts[id] = timeout
		}
	}
}

// shortages are the settings that are known, and for those that are too short the
// reason, for people.
func shortages(of Retention, timeoutMillis, expirationMillis int64) map[string]string {
	short := map[string]string{settingRetention: ""}
	if ms := of.IDExpirationMillis; ms >= 0 {
		short[settingIDExpiration] = ""
		if ms < expirationMillis {
			short[settingIDExpiration] = fmt.Sprintf("it is %d ms, and the coordinator remembers an id for %d ms (global.transactional.id.expiration.ms): after an outage in between the cluster cannot tell how a transaction ended",
				ms, expirationMillis)
		}
	}
	for _, topic := range slices.Sorted(maps.Keys(of.TopicMillis)) {
		if ms := of.TopicMillis[topic]; ms < timeoutMillis {
			short[settingRetention] = fmt.Sprintf("of topic %q it is %d ms, and a session over this cluster has a timeout of %d ms: records can be deleted before their transaction ends",
				topic, ms, timeoutMillis)
			break
		}
	}
	return short
}

// lookAtRetention is called after a scan, so it delays nobody who waits.
func (s *Service) lookAtRetention(ctx context.Context, clusterID string, log zerolog.Logger) {
	if s.o.Retention == nil {
		return
	}
	of, err := s.o.Retention(ctx, clusterID)
	if err != nil {
		if ctx.Err() == nil {
			log.Info().Err(err).Msg("not known whether the cluster keeps long enough what has to outlast an outage")
		}
		return
	}
	s.retentions.mu.Lock()
	s.retentions.of[clusterID] = of
	s.retentions.mu.Unlock()
	s.warnOfRetention(clusterID)
}

// warnOfRetention says what is too short, when it is new and once an hour.
func (s *Service) warnOfRetention(clusterIDs ...string) {
	now := s.o.Clock.Now().Mono
	for _, id := range clusterIDs {
		for setting, text := range s.shortages(id) {
			if s.retentions.toSay(id+" "+setting, text, now) {
				s.o.Logger.Warn().Str("cluster", id).Str("setting", setting).Str("why", text).
					Msg("a participant does not keep long enough what has to outlast an outage; raise the setting there")
			}
		}
	}
}

func (r *retentions) toSay(key, text string, now int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	last, said := r.warned[key]
	switch {
	case text == "":
		delete(r.warned, key)
		return false
	case said && last.text == text && now-last.mono < repeatWarning.Milliseconds():
		return false
	}
	r.warned[key] = warning{text, now}
	return true
}

// shortages are those of a cluster; nil while nothing is known of it.
func (s *Service) shortages(clusterID string) map[string]string {
	s.retentions.mu.Lock()
	defer s.retentions.mu.Unlock()
	of, known := s.retentions.of[clusterID]
	if !known {
		return nil
	}
	return shortages(of, s.retentions.timeouts[clusterID], s.o.Config.ExpirationMillis)
}

// clusters are those of which the retention is known.
func (r *retentions) clusters() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.of))
}
