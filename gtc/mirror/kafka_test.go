//go:build kafka

package mirror_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/kafka-gtc/kafka-gtc/conformance/cluster"
)

// The same on Apache Kafka.
func TestKafka(t *testing.T) {
	us, eu := cluster.Up(t, "mirror-us", cluster.V44), cluster.Up(t, "mirror-eu", cluster.V44)
	gtc := coordinator(t, us.Bootstrap, eu.Bootstrap)
	for name, test := range map[string]func(*testing.T, rig){
		"aliases":       bothDirections,
		"one name":      underOneName,
		"group offsets": func(t *testing.T, r rig) { groupOffsets(t, r, false) },
		"home":          groupOffsetsHome,
		"and restarted": func(t *testing.T, r rig) { groupOffsets(t, r, true) },
	} {
		t.Run(name, func(t *testing.T) {
			test(t, newRig(t, us.Bootstrap, eu.Bootstrap, gtc, fmt.Sprintf("t%d", time.Now().UnixNano())))
		})
	}
}
