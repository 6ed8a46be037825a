//go:build kafka

package assign_test

import (
	"testing"

	"github.com/kafka-gtc/kafka-gtc/conformance/cluster"
)

func TestANodeThatIsStartedAgainTakesItsFormerSelfOutOnKafka(t *testing.T) {
	startedAgain(t, cluster.Up(t, "v44", cluster.V44).Bootstrap)
}
