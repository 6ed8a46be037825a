package service_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/kafka-gtc/kafka-gtc/gtc"
	"github.com/kafka-gtc/kafka-gtc/gtc/service"
	"github.com/kafka-gtc/kafka-gtc/txnlog/memlog"
)

// halfAway are clusters of which b has never been reached: whoever asks for its id
// waits.
type halfAway struct {
	*clusters
	scans atomic.Int32 // of a
}

func (c *halfAway) Learn(ctx context.Context, alias string) (string, error) {
	if alias == "b" {
		<-ctx.Done()
		return "", ctx.Err()
	}
	return alias, nil
}

func (c *halfAway) Scan(ctx context.Context, cluster string, known func(string) bool) ([]gtc.OpenTransaction, error) {
	c.scans.Add(1)
	return c.clusters.Scan(ctx, cluster, known)
}

// C-SCAN-7: one that is away at the start delays no scan of another, and so no
// expiry of ids that need only the others.
func TestAClusterThatIsAwayAtTheStartDelaysNoOtherScan(t *testing.T) {
	c := &halfAway{clusters: newClusters()}
	st := play(t, memlog.NewStore(1), c.clusters, func(o *service.Options) {
		o.Participants, o.Config.ExpirationMillis, o.Config.ScanIntervalMillis = c, 100, 1000
	}).active()
	st.open("pay", "a")
	eventually(t, func() error {
		if n := c.scans.Load(); n < 10 {
			return fmt.Errorf("a was scanned %d times", n)
		}
		return nil
	})
	eventually(t, func() error {
		if d := st.describe("pay"); d.ErrorCode != kerr.TransactionalIDNotFound.Code {
			return fmt.Errorf("not expired: %s", d.State)
		}
		return nil
	})
}

// A cluster that has not said who it is has not been scanned.
func TestAClusterThatIsAwayIsAFailedScan(t *testing.T) {
	st := play(t, memlog.NewStore(1), newClusters(), func(o *service.Options) { o.ScanInterval = time.Millisecond }).active()
	eventually(t, func() error {
		if n := gather(t, st.s.Metrics())[`gtc_scan_failures_total{cluster="b"}`]; n < 2 {
			return fmt.Errorf("%v failed scans", n)
		}
		return nil
	})
}
