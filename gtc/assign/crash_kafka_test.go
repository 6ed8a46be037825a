//go:build kafka

package assign_test

import (
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/conformance/cluster"
)

func TestANodeThatIsStartedAgainTakesItsFormerSelfOutOnKafka(t *testing.T) {
	// kfake forgets one that joins for each that leaves with its SyncGroup waiting,
	// and then waits for the rebalance timeout; so this point is for Kafka alone.
	startedAgain(t, cluster.Up(t, "v44", cluster.V44).Bootstrap, append(slices.Clone(points), point("sent", kmsg.SyncGroup, 1)))
}
