//go:build kafka

package interop

import "testing"

func TestClientsThatKnowNothingOfUs(t *testing.T) {
	r := newRig(t)
	t.Run("consumers agree", func(t *testing.T) { testConsumers(t, r) })
	t.Run("producers take part", func(t *testing.T) { testProducers(t, r) })
}
