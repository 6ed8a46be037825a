package topiclog

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/txnlog"
	"github.com/kafka-gtc/kafka-gtc/txnlog/internal/logtest"
)

// The reader is slow until the broker has been asked for what comes next.
// Without that fetch a replay takes half as long again.
func TestTheNextFetchIsUnderWayWhileAReplayFeeds(t *testing.T) {
	s, c := kfakeStore(t)
	w, _ := logtest.Claim(t, s.open(t), 0)
	const records, size = 8, 1_000_000 // of which two fit into one answer
	for i := range records {
		r := logtest.Put("a", int64(i))
		r.Value.Reason = strings.Repeat("x", size)
		mustAppend(t, w, r)
	}
	var fetches atomic.Int32
	c.ControlKey(int16(kmsg.Fetch), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		fetches.Add(1)
		return nil, nil, false
	})
	replayed := 0
	_, err := s.open(t).Claim(t.Context(), 0, func(txnlog.Entry) error {
		replayed++
		for deadline := time.Now().Add(patience); fetches.Load() < 2; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				return errors.New("nothing is fetched while the reader works")
			}
		}
		return nil
	})
	if err != nil || replayed != records {
		t.Fatalf("%d records were replayed, %v, want %d", replayed, err, records)
	}
}
