package participant

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/kafka-gtc/kafka-gtc/gtc"
)

func heap() int64 {
	runtime.GC()
	runtime.GC() // what the first one had to finalise
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A client may ask for any number of names of 30 kB that are refused. Neither where
// they are coordinated nor the ends of their transactions are remembered by name.
func TestNamesAreNotKept(t *testing.T) {
	a := fake(t, "A", kfake.BrokerConfigs(map[string]string{maxTimeoutMillis: "900000"}))
	c := drive(t, at("a", a.ListenAddrs()...))
	name := func(i int) string { return fmt.Sprintf("%d%s", i, strings.Repeat("x", 30_000)) }
	refused := func(i int) {
		if r := c.Check(t.Context(), name(i), []string{"A"})[0]; r.Code != gtc.CheckNotOptedIn {
			t.Fatalf("%+v", r)
		}
		c.all[0].attempts.voted(keyOf(name(i), gtc.ParticipantRef{ClusterID: "A", ProducerID: int64(i)}), 1000, 1)
	}
	refused(0) // it has connected
	before := heap()
	for i := range 1000 {
		refused(i)
	}
	if kept := heap() - before; kept > 8<<20 {
		t.Errorf("1000 names of 30 kB leave %d bytes, want 8 MiB at most", kept)
	}
	runtime.KeepAlive(c)
}
