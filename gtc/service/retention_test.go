package service_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/kafka-gtc/kafka-gtc/gtc/service"
	"github.com/kafka-gtc/kafka-gtc/txnlog/memlog"
)

const (
	shortID    = `gtc_participant_retention_too_short{cluster="a",setting="transactional.id.expiration.ms"}`
	shortTopic = `gtc_participant_retention_too_short{cluster="a",setting="retention.ms"}`
)

// A participant that keeps ids or records too short is named at the start, or when
// a session makes it so, once; and for as long as it is so by the metric.
func TestAParticipantThatKeepsTooShortIsNamed(t *testing.T) {
	const week = 7 * 24 * hour
	for name, tc := range map[string]struct {
		of           service.Retention
		before, then map[string]float64 // without a session, and with one of 60 s
		say          []string
	}{
		"enough": {
			service.Retention{IDExpirationMillis: week, TopicMillis: map[string]int64{"orders": 60_000}},
			map[string]float64{shortID: 0, shortTopic: 0},
			map[string]float64{shortID: 0, shortTopic: 0},
			nil,
		},
		"ids": {
			service.Retention{IDExpirationMillis: week - 1},
			map[string]float64{shortID: 1, shortTopic: 0},
			map[string]float64{shortID: 1, shortTopic: 0},
			[]string{"it is 604799999 ms", "global.transactional.id.expiration.ms"},
		},
		"a topic": {
			service.Retention{IDExpirationMillis: -1, TopicMillis: map[string]int64{"audit": 90_000, "orders": 59_999}},
			map[string]float64{shortTopic: 0},
			map[string]float64{shortTopic: 1},
			[]string{`of topic \"orders\" it is 59999 ms`, "60000 ms"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			said, c := new(safeBuffer), newClusters()
			c.open["a"] = nil
			st := play(t, memlog.NewStore(1), c, func(o *service.Options) {
				o.Logger = zerolog.New(said)
				o.Retention = func(context.Context, string) (service.Retention, error) { return tc.of, nil }
			}).active()
			st.counted(tc.before)
			eventually(t, func() error { // when the cluster has been asked
				if _, known := gather(t, st.s.Metrics())[shortTopic]; !known {
					return errors.New("not asked yet")
				}
				return nil
			})
			if _, shown := gather(t, st.s.Metrics())[shortID]; shown != (tc.of.IDExpirationMillis >= 0) {
				t.Errorf("the metric of the ids is there: %v", shown)
			}
			st.open("pay", "a")
			st.counted(tc.then)
			for range 3 {
				st.handle(initRequest("pay", 1, "a"))
			}
			const warns = "does not keep long enough"
			if n := strings.Count(said.String(), warns); n != min(len(tc.say), 1) {
				t.Errorf("%d warnings:\n%s", n, said.String())
			}
			for _, what := range tc.say {
				if !strings.Contains(said.String(), what) {
					t.Errorf("the log does not say %q:\n%s", what, said.String())
				}
			}
		})
	}
}
