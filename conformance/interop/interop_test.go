//go:build kafka

package interop

import (
	"testing"

	"github.com/kafka-gtc/kafka-gtc/conformance/cluster"
)

func TestClientsThatKnowNothingOfUs(t *testing.T) {
	r := newRig(t, cluster.V44TwoPC)
	t.Run("consumers agree", func(t *testing.T) { testConsumers(t, r) })
	t.Run("producers take part", func(t *testing.T) { testProducers(t, r) })
	t.Run("sockets", func(t *testing.T) { testSockets(t, r, 2) })
}

// TestSocketsBelowTransactionVersion2: the producer epoch stays, and is not
// always handed back.
func TestSocketsBelowTransactionVersion2(t *testing.T) {
	testSockets(t, newRig(t, cluster.V391), 0)
}
